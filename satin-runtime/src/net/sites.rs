//! What a node has exchanged with the nodes of each site.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use quinn::Connection;

use crate::observe::look::SiteTraffic;

/// The traffic with each site. Connections that stand are added when it is read.
#[derive(Default)]
pub(super) struct Sites(RefCell<BTreeMap<String, SiteTraffic>>);

impl Sites {
    fn change(&self, site: &str, change: impl FnOnce(&mut SiteTraffic)) {
        let mut sites = self.0.borrow_mut();
        if !sites.contains_key(site) {
            let none = SiteTraffic {
                site: site.into(),
                ..SiteTraffic::default()
            };
            sites.insert(site.into(), none);
        }
        sites.get_mut(site).map(change);
    }

    /// Jobs came from a node there.
    pub(super) fn took(&self, site: &str, jobs: usize) {
        self.change(site, |traffic| traffic.taken += jobs as u64);
    }

    /// Jobs went to a node there.
    pub(super) fn gave(&self, site: &str, jobs: usize) {
        self.change(site, |traffic| traffic.given += jobs as u64);
    }

    /// The traffic so far; `open` are the connections that stand, each with its site.
    pub(super) fn read<'l>(
        &self,
        open: impl Iterator<Item = (&'l str, &'l Connection)>,
    ) -> Vec<SiteTraffic> {
        let sum = Sites(RefCell::new(self.0.borrow().clone()));
        open.for_each(|(site, connection)| sum.carried(site, connection));
        sum.0.into_inner().into_values().collect()
    }

    fn carried(&self, site: &str, connection: &Connection) {
        let carried = connection.stats();
        self.change(site, |traffic| {
            traffic.bytes_sent += carried.udp_tx.bytes;
            traffic.bytes_received += carried.udp_rx.bytes;
        });
    }
}

/// Adds what a connection has carried to the traffic with its site when it ends.
pub(super) struct Carried {
    pub(super) sites: Rc<Sites>,
    pub(super) site: Rc<str>,
    pub(super) connection: Connection,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.sites.carried(&self.site, &self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_site() {
        let sites = Sites::default();
        sites.took("delft", 2);
        sites.gave("leiden", 1);
        sites.took("delft", 1);
        let read = sites.read(std::iter::empty());
        let counted: Vec<_> = (read.iter())
            .map(|traffic| (traffic.site.as_str(), traffic.taken, traffic.given))
            .collect();
        assert_eq!(counted, [("delft", 3, 0), ("leiden", 0, 1)]);
    }
}
