//! How orphan tables come to everybody: news go to a few nodes, which tell a few others; now and then two nodes
//! compare.

use std::{collections::BTreeMap, time::Duration};

use rand::RngExt;

use super::{
    super::{Action, Context, Message, Page, Peer, Rule},
    table::Read,
};

/// The wait of news for more of them. Too small: a message for each orphan. Too large: a repair is not told
/// in time what it could claim.
const COMBINE: Duration = Duration::from_millis(2);

/// The number of other nodes up to which the owner of a sheet tells everybody itself. Too small: small pools
/// depend on chance. Too large: one node sends too many messages.
const ALL: usize = 8;

/// The number of nodes, chosen by chance, that each node tells in a larger pool. Too small: many hear it only
/// when they compare. Too large: noise.
const FEW: usize = 4;

/// The mean time between two comparisons with another node, as long as there is anything in the tables. Too
/// small: noise. Too large: what gossip missed comes late.
const COMPARE: Duration = Duration::from_millis(500);

/// When to tell what.
#[derive(Default)]
pub(crate) struct Spread {
    /// The owners of sheets that have changed, and the version that the others knew before.
    news: BTreeMap<Peer, u64>,
    /// Set while news wait to be combined.
    tell: Option<Duration>,
    /// Set while there is anything in the tables: an idle pool compares nothing.
    compare: Option<Duration>,
    /// The own sheet as it was told last.
    told: u64,
}

impl Spread {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.tell.into_iter().chain(self.compare).min()
    }

    /// The end of a turn: has anything been written on the own sheet?
    pub(crate) fn look(&mut self, cx: &mut Context<'_>) {
        let strict = cx.config.obeys(Rule::Flushed);
        // First, as the words of this turn may have been the last that were waited for.
        cx.table.refresh_settled(cx.actions, cx.view, strict);
        let me = cx.table.me();
        let version = cx.table.version(me);
        if version != self.told && cx.config.obeys(Rule::Announce) {
            // The oldest version that is not told yet stays: a page is to bring all that came
            // after it.
            self.news.entry(me).or_insert(self.told);
            self.told = version;
        }
        if !self.news.is_empty() {
            self.tell.get_or_insert(cx.now + COMBINE);
        }
        // Programs that see no death compare nothing.
        if cx.table.is_blank() || !cx.config.obeys(Rule::AntiEntropy) {
            self.compare = None;
        } else if self.compare.is_none() {
            // By chance, so that the nodes of a pool do not all compare at the same moment.
            let wait = COMPARE.mul_f64(cx.rng.random_range(0.5..1.5));
            self.compare = Some(cx.now + wait);
        }
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if self.tell.is_some_and(|tell| tell <= cx.now) {
            self.tell = None;
            self.tell_some(cx);
        }
        if self.compare.is_some_and(|compare| compare <= cx.now) {
            // The next turn sets a new time if there is still anything to compare.
            self.compare = None;
            if let Some(peer) = cx.view.random(cx.rng) {
                let versions = Message::Versions(cx.table.versions());
                cx.actions.push_back(Action::Send(peer, versions));
            }
        }
    }

    fn tell_some(&mut self, cx: &mut Context<'_>) {
        let news = std::mem::take(&mut self.news);
        let pages: Vec<Page> = news
            .into_iter()
            .filter_map(|(owner, after)| cx.table.page(owner, after))
            .collect();
        if pages.is_empty() {
            return;
        }
        let me = cx.view.me().peer;
        let others = cx.view.len() - 1;
        let mut to: Vec<Peer> = Vec::new();
        // Beyond that no node sends a message to each of the others: the few who are told pass it
        // on.
        if others <= ALL {
            let members = cx.view.members().map(|member| member.peer);
            to.extend(members.filter(|peer| *peer != me));
        } else {
            for _ in 0..FEW {
                // Chance may name a node twice: it is told once, and one less in all.
                to.extend(cx.view.random(cx.rng).filter(|peer| !to.contains(peer)));
            }
        }
        for peer in to {
            let table = Message::Table(pages.clone());
            cx.actions.push_back(Action::Send(peer, table));
        }
    }

    /// Forgets what was told of the own sheet: this node lives on under another name.
    pub(crate) fn rename(&mut self) {
        // The new sheet begins with its first version, and the old name's news would be dropped
        // as those of the dead.
        self.told = 0;
        self.news.clear();
    }

    /// A joiner is told everything.
    pub(crate) fn welcome(&self, cx: &mut Context<'_>, peer: Peer) {
        if cx.table.is_blank() || !cx.config.obeys(Rule::Welcome) {
            return;
        }
        let (pages, _) = cx.table.compare(&[], cx.view);
        cx.actions
            .push_back(Action::Send(peer, Message::Table(pages)));
    }

    // ---- what others say

    pub(crate) fn table(&mut self, cx: &mut Context<'_>, from: Peer, pages: Vec<Page>) {
        let mut gap = false;
        for page in pages {
            let owner = page.owner;
            match cx.table.read(cx.actions, cx.now, cx.view, page) {
                Read::Old => {}
                // Changes in between were missed: asked for once, whatever the number of pages.
                Read::Gap => gap = true,
                Read::New(before) => {
                    // In a small pool the owner has told everybody, and nothing needs to be passed
                    // on.
                    if cx.view.len() > ALL + 1 {
                        self.news.entry(owner).or_insert(before);
                    }
                }
            }
        }
        if gap && cx.config.obeys(Rule::AntiEntropy) {
            let versions = Message::Versions(cx.table.versions());
            cx.actions.push_back(Action::Send(from, versions));
        }
    }

    /// Answers a comparison. A node that has nothing asks for everything, and is answered in any case.
    pub(crate) fn versions(&self, cx: &mut Context<'_>, from: Peer, theirs: &[(Peer, u64)]) {
        let (pages, lack) = cx.table.compare(theirs, cx.view);
        // A new master asks like that, and waits for each node's answer, even for one that brings
        // no news.
        if !pages.is_empty() || theirs.is_empty() {
            cx.actions
                .push_back(Action::Send(from, Message::Table(pages)));
        }
        // The other side knows more of some sheets: it is asked in turn, so one comparison
        // serves both.
        if lack {
            let versions = Message::Versions(cx.table.versions());
            cx.actions.push_back(Action::Send(from, versions));
        }
    }
}
