//! The imaginary network: connections, and messages on their way.

use std::{net::SocketAddr, time::Duration};

use rand::RngExt;

use super::super::{Event, Message, MessageKind, Peer, words};
use super::{CONNECT_TIMEOUT, Cluster, Happening, ImaginaryLink, Path, index_of, size};

impl Cluster {
    pub(super) fn link(&mut self, node: u32, other: u32) -> &mut ImaginaryLink {
        self.slot_mut(node).links.entry(other).or_default()
    }

    pub(super) fn path(&self, a: u32, b: u32) -> Path {
        self.wire.path(self.slot(a).site, self.slot(b).site)
    }

    pub(super) fn connect(&mut self, node: u32, addr: SocketAddr, peer: Option<Peer>) {
        let other = index_of(addr);
        let refused = |attempt| Happening::Unreachable {
            node,
            addr,
            peer,
            attempt,
        };
        if other as usize >= self.slots.len() || other == node {
            let attempt = self.link(node, other).attempts;
            return self.schedule(self.now, refused(attempt));
        }
        let link = self.link(node, other);
        if link.up && link.closing {
            link.again = Some((addr, peer));
            return;
        }
        if link.up {
            return;
        }
        if std::mem::replace(&mut link.connecting, true) {
            link.meant.push(peer);
            return;
        }
        link.attempts += 1;
        let attempt = link.attempts;
        if self.is_rejected(node, other) {
            let answers = self.path(node, other).round_trip;
            self.schedule(self.now + answers, refused(attempt));
        } else if !self.slot(other).alive || self.is_cut(node, other) {
            self.schedule(self.now + CONNECT_TIMEOUT, refused(attempt));
        } else {
            let handshake = (self.path(node, other).round_trip).mul_f64(self.wire.handshake);
            let (from, to) = (node, other);
            let open = Happening::Open {
                from,
                to,
                peer,
                attempt,
            };
            self.schedule(self.now + handshake, open);
        }
    }

    /// Does a firewall answer for what is cut off? Within a site there is none.
    fn is_rejected(&self, a: u32, b: u32) -> bool {
        let is_far = self.slot(a).site != self.slot(b).site;
        self.wire.rejects && is_far && self.is_cut(a, b)
    }

    /// Probes an address: the machine of a dead process answers that no process listens; a machine that is cut off does
    /// not answer, unless a firewall does.
    pub(super) fn probe(&mut self, node: u32, addr: SocketAddr, peer: Peer) {
        let other = index_of(addr);
        if other as usize >= self.slots.len() {
            return;
        }
        let answers = match self.is_cut(node, other) {
            true => self.is_rejected(node, other),
            false => !self.slot(other).alive,
        };
        if !answers {
            return;
        }
        let at = self.now + self.path(node, other).round_trip;
        self.schedule(at, Happening::Gone { node, peer });
    }

    pub(super) fn open(&mut self, from: u32, to: u32, peer: Option<Peer>, attempt: u32) {
        let addr = self.addr(to);
        let link = self.link(from, to);
        let stands = link.connecting && link.attempts == attempt;
        if !self.slot(from).alive || !stands {
            return;
        }
        let unreachable = Happening::Unreachable {
            node: from,
            addr,
            peer,
            attempt,
        };
        if !self.slot(to).alive || self.slot(to).frozen || self.is_cut(from, to) {
            return self.schedule(self.now + CONNECT_TIMEOUT, unreachable);
        }
        // Another life is there than the one that is called.
        let life = self.peer(to);
        let mut meant = self.link(from, to).meant.clone();
        meant.push(peer);
        if let [Some(only)] = *meant
            && only != life
        {
            return self.schedule(self.now, unreachable);
        }
        let meant = meant.into_iter().flatten();
        let others: Vec<Peer> = meant.filter(|peer| *peer != life).collect();
        let epoch = self.link(from, to).epoch.max(self.link(to, from).epoch) + 1;
        let near = self.slot(from).site == self.slot(to).site;
        self.traffic.connections.add(near, 1);
        let round_trip = self.path(from, to).round_trip;
        for (node, other) in [(from, to), (to, from)] {
            let now = self.now;
            let life = self.peer(other);
            let link = self.link(node, other);
            link.up = true;
            link.peer = Some(life);
            link.closing = false;
            link.connecting = false;
            link.meant.clear();
            link.epoch = epoch;
            link.last = now;
            link.arrived = now;
            link.free = now;
            link.large_free = now;
            link.stalled.clear();
            let waiting = link.take_waiting(life);
            let sender = self.peer(node);
            for message in waiting {
                self.transmit(node, other, sender, message);
            }
            let peer = self.node(other).view().me().clone();
            let connected = Event::Connected {
                peer,
                epoch,
                round_trip,
            };
            self.slot_mut(node).workers.events.push_back(connected);
        }
        for peer in others {
            let unsent = self.link(from, to).take_waiting(peer);
            let peer = Some(peer);
            let unreachable = Event::Unreachable { addr, peer, unsent };
            self.slot_mut(from).workers.events.push_back(unreachable);
        }
        self.run_node(from);
        self.run_node(to);
    }

    pub(super) fn lose(&mut self, node: u32, other: u32, epoch: u64) {
        if !self.slot(node).alive {
            return;
        }
        let link = self.link(node, other);
        let mut again = None;
        if link.epoch == epoch && link.up {
            link.up = false;
            link.closing = false;
            link.stalled.clear();
            again = link.again.take();
        }
        let life = self.link(node, other).peer;
        let peer = life.unwrap_or_else(|| self.peer(other));
        self.tell(node, Event::Disconnected { peer, epoch });
        if let Some((addr, peer)) = again {
            self.connect(node, addr, peer);
        }
    }

    pub(super) fn send(&mut self, node: u32, to: Peer, message: Message) {
        let other = self.index(to);
        if other as usize >= self.slots.len() {
            return;
        }
        let sender = self.peer(node);
        let link = self.link(node, other);
        if link.up && !link.closing {
            self.transmit(node, other, sender, message);
        } else {
            link.waiting.push((to, message));
        }
    }

    /// Over the link that stands.
    pub(super) fn transmit(&mut self, node: u32, other: u32, sender: Peer, message: Message) {
        let near = self.slot(node).site == self.slot(other).site;
        if self.trace
            && let Some(words) = words::message(&message)
        {
            let who = format!("{} -> {other}", words::name(sender));
            self.say(&who, &words);
        }
        let count = match message.kind() {
            MessageKind::Jobs if message.jobs().is_empty() => &mut self.traffic.refusals,
            kind => &mut self.traffic.messages[kind as usize],
        };
        count.add(near, 1);
        self.traffic.jobs.add(near, message.jobs().len() as u64);
        let gossip = matches!(message, Message::Gossip(_));
        let path = self.path(node, other);
        if self.is_cut_way(node, other) {
            if !gossip {
                self.link(node, other).stalled.push((sender, message));
            }
            return;
        }
        if gossip && path.loss > 0.0 && self.rng.random_bool(path.loss) {
            return;
        }
        let size = size(&message);
        let mut latency = path.round_trip / 2;
        if path.jitter > Duration::ZERO {
            latency += path.jitter.mul_f64(self.rng.random());
        }
        // Gossip goes by datagrams, which wait for no stream.
        let large = !gossip && size > self.wire.large;
        latency += self.astray(gossip, large);
        let again = gossip.then(|| self.again()).flatten();
        let now = self.now;
        let speed = self.wire.speed(node, other);
        let link = self.link(node, other);
        let mut leaves = now;
        if let Some(rate) = path.rate {
            let takes = Duration::from_secs_f64(size as f64 / (rate as f64 * speed));
            // Small messages do not wait for large ones, which are sent one after another.
            let free = match large {
                true => &mut link.large_free,
                false => &mut link.free,
            };
            *free = (*free).max(now) + takes;
            leaves = *free;
        }
        let mut arrives = leaves + latency;
        if !large && !gossip {
            arrives = arrives.max(link.last);
            link.last = arrives;
        }
        if !gossip {
            link.arrived = link.arrived.max(arrives);
        }
        let epoch = link.epoch;
        if path.rate.is_some() {
            self.traffic.bytes.add(near, size as u64);
        }
        let (to, from) = (other, node);
        let message = Box::new(message);
        let arrival = |message| Happening::Arrive {
            to,
            from,
            sender,
            epoch,
            message,
        };
        if let Some(later) = again {
            self.schedule(arrives + later, arrival(message.clone()));
        }
        self.schedule(arrives, arrival(message));
    }
}
