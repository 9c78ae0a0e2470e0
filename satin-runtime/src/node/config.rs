//! The numbers of the protocol. Each doc says what goes wrong if the number is too small or too large.

use std::{net::SocketAddr, time::Duration};

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// The steal policy: which node an idle node asks for work.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Policy {
    /// Cluster-aware random stealing: the own site one after another, and beside it one request to another site.
    #[default]
    Crs,
    /// A random node of the pool, one request at a time.
    Rs,
    /// The master only.
    Mw,
}

/// Which jobs are worth their way to another node, see `node/steal/README.md`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Judgement {
    /// Jobs that take long beside the way of their bytes, as far as that has been learnt.
    #[default]
    Learnt,
    /// All jobs that are asked for, whatever they move.
    Always,
}

/// The treatment of orphans.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum RepairMode {
    /// Orphans run on.
    #[default]
    Running,
    /// Orphans are aborted, and the results of their finished children are kept: as in the original Satin.
    Finished,
    /// Orphans are aborted, and nothing is kept: to compare with.
    Naive,
}

/// The rules of repair, each of which can be left out in simulations: to show that the simulator finds what goes wrong
/// without it. See `node/repair/README.md`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// Outstanding jobs of a peer whose life has ended are put back.
    PutBack,
    /// A job that is put back is marked, and looks itself up.
    Mark,
    /// Children of marked jobs are looked up.
    Inherit,
    /// The mark stays until every live node has flushed.
    Flushed,
    /// Orphans are announced.
    Announce,
    /// Gossip that was missed is caught up with.
    AntiEntropy,
    /// A claim is withdrawn when its node has nothing else to run.
    Withdraw,
    /// Results and withdrawals carry tokens; stale ones change nothing.
    Tokens,
    /// Messages of a life that has ended in the view are dropped.
    Liveness,
    /// A node that is declared dead ends the lives of all its peers too, for itself, before it goes on as the next generation.
    Rebirth,
    /// Of two sides that meet after a cut one comes over.
    Sides,
    /// Both sides know alike which of the two comes over.
    Order,
    /// A node that comes over leaves its side, and comes in anew.
    ComeIn,
    /// A node that has come over and is not let in founds a pool.
    LetIn,
    /// A node that has come over forgets which root jobs were over at its old side.
    ForgetTime,
    /// A result that is used again brings all bounds of its root job.
    BringBounds,
    /// A node goes on as the next generation only if most nodes say that it is dead.
    Larger,
    /// A thief that has the job already says so.
    Have,
    /// Closed orphans go.
    Closed,
    /// A late joiner gets the table with its welcome.
    Welcome,
    /// A node whose frame is gone disowns what it had outstanding.
    Disown,
    /// The results of finished children are saved when a job is given up.
    Save,
    /// Results are reused only if the fingerprints match.
    Fingerprint,
    /// Results of root jobs are replicated.
    Replicate,
    /// Root jobs wait until what stands in the store is in the table.
    LoadFirst,
    /// Results are stored with the bounds that they were computed under.
    StoredBounds,
    /// The log of a node that died is read.
    ReadLogs,
    /// A master that finds a later start of its run ends.
    Epoch,
    /// No other side of a cut begins `main` while the signs of life of the latest one go on.
    OneMain,
    /// A segment is forgotten only when others have written what was in it.
    Covered,
    /// A task of a flow begins when what it reads is there. (This rule and those below are of flows: workers obey them, real ones always.)
    Inputs,
    /// An answer that comes for a task makes those ready that wait for it.
    ShowWaiting,
    /// A worker takes tasks of the flow that it waits for, however little stack is left.
    OwnTasks,
    /// Tasks of a flow that may have run before are looked up.
    LookUpTasks,
    /// Tasks that are to be looked up do not leave before.
    TasksStay,
    /// The fingerprint of a task covers what it reads.
    TaskPrint,
    /// When a flow stops, its tasks that are away are recalled.
    RecallTasks,
    /// What a task made, and nobody has any more, is made again.
    Lineage,
}

/// The numbers of the protocol.
#[derive(Clone, Debug)]
pub struct ProtocolConfig {
    /// The steal policy.
    pub policy: Policy,
    /// Which jobs are worth their way.
    pub judgement: Judgement,
    /// Where to find the pool; empty for a founder.
    pub join: Vec<SocketAddr>,
    /// Found the pool if nobody of `join` answers.
    pub may_found: bool,
    /// Root jobs wait until so many nodes are in.
    pub nodes: u32,
    /// Time between two probes of foca. Shorter finds deaths sooner and costs messages.
    pub probe_period: Duration,
    /// The time for which a silent node is suspected before it is declared dead; half a second longer with
    /// each doubling of the pool. Too small: nodes that only paused lose their work and come back as the next
    /// generation. Too large: the work of the dead is done again later. (A process that was killed is found
    /// sooner, see [`Action::Probe`](super::Action::Probe).)
    pub suspicion: Duration,
    /// The treatment of orphans.
    pub repair: RepairMode,
    /// A job that took down so many nodes is given up: its parent's sync panics. Too small: a job that was near three
    /// power cuts fails. Too large: a job that kills its host takes half of the pool with it.
    pub max_crashes: u32,
    /// When half of the nodes, or all of another site, fall silent with the master at once, the others wait so long
    /// for them before they choose a master of their own: the other node of a pool of two too, and whoever loses the only
    /// node of a site. (Nobody waits for a process whose end its machine has confirmed, or which said goodbye.) Too
    /// small: a short partition makes two pools. Too large: the loss of the master's site is made good late.
    pub partition_wait: Duration,
    /// A part of the pool makes one attempt in that time, all its nodes together and without end, to reach those it lost
    /// to silence: they may be the other part of a partition. (After a loss the attempts begin four times as often.) Too
    /// small: datagrams to machines that are off. Too large: two masters for longer after the network is whole again.
    pub redial: Duration,
    /// A live node with which something is under way, and that can be reached neither directly nor through others for so
    /// long, is declared dead: what is under way is done again, and the node goes on as the next generation. Counted
    /// from the first attempt to connect that failed. Too small: a pause of the network costs work. Too large: what is
    /// away there is waited for.
    pub cut_off: Duration,
    /// A claim is withdrawn when its node has had nothing else to do for so long. Too small: work is done twice that
    /// was nearly done. Too large: an orphan that lies on a stack below its own repair costs that much time.
    pub claim_patience: Duration,
    /// Each node sends copies of what it has harvested to a neighbour in that time; zero: never. Too small: traffic. Too large:
    /// a death costs that time, of each worker.
    pub copy_every: Duration,
    /// Each node writes what it has harvested to stable storage in that time; zero: as soon as the last was written. `None`:
    /// there is no store. Too small: the store is busy with small writes. Too large: the loss of all nodes costs that time, of
    /// each worker.
    pub store_every: Option<Duration>,
    /// Bytes of results in one batch that goes to stable storage, about; the rest goes with the next. Too small: many writes. Too
    /// large: a node that dies while it writes loses more.
    pub store_batch: usize,
    /// What a node has written is not written anew before it is so many bytes. Too small: the same is written again and again.
    /// Too large: logs grow.
    pub store_log: usize,
    /// A node keeps so many bytes of results of root jobs for a `main` that is started again, the last ones; the very
    /// last whatever its size. Too small: such a `main` does older ones again. Too large: memory, as long as `main`
    /// runs.
    pub root_results: usize,
    /// Bytes of data that hosted jobs have borrowed here last, and that stay; what they have been decoded to takes about as much again. Too
    /// few: data are fetched again for the next task that reads them. Too many: memory.
    pub flow_data: u64,
    /// Messages with more bytes than this may be overtaken by others, or overtake them. Half of what the links send on a
    /// stream of its own, because bytes are estimated here. Too small: bounds are repeated. Too large: a result arrives
    /// before them.
    pub may_stray: usize,
    /// Rules that are left out.
    #[cfg(any(test, feature = "harness"))]
    pub without: std::collections::BTreeSet<Rule>,
    /// Times of the protocol that are no settings are over so many times as soon: they fit settings that are as short.
    #[cfg(any(test, feature = "harness"))]
    pub hurry: u32,
    /// No failure detector: the members are given beforehand and stay. For simulations of stealing alone.
    pub fixed_members: bool,
}

/// The first period of a node, at most. Too small: copies and batches without results. Too large: a run that is shorter, or
/// broken off sooner, leaves nothing.
const FIRST_PERIOD: Duration = Duration::from_secs(1);

impl Default for ProtocolConfig {
    fn default() -> ProtocolConfig {
        ProtocolConfig {
            policy: Policy::Crs,
            judgement: Judgement::Learnt,
            join: Vec::new(),
            may_found: true,
            nodes: 1,
            probe_period: Duration::from_millis(500),
            suspicion: Duration::from_secs(3),
            repair: RepairMode::Running,
            max_crashes: 3,
            partition_wait: Duration::from_secs(30),
            redial: Duration::from_secs(8),
            cut_off: Duration::from_secs(20),
            claim_patience: Duration::from_millis(500),
            copy_every: Duration::from_secs(2),
            store_every: None,
            store_batch: 32 << 20,
            store_log: 4 << 20,
            root_results: 256 << 20,
            flow_data: 256 << 20,
            may_stray: 32 << 10,
            #[cfg(any(test, feature = "harness"))]
            without: std::collections::BTreeSet::new(),
            #[cfg(any(test, feature = "harness"))]
            hurry: 1,
            fixed_members: false,
        }
    }
}

impl ProtocolConfig {
    /// A time of the protocol; in simulations that are in a hurry it is shorter.
    pub(crate) fn paced(&self, usual: Duration) -> Duration {
        #[cfg(any(test, feature = "harness"))]
        // Times that are no settings must shrink with those that are, or a short run would never
        // meet their end.
        return usual / self.hurry.max(1);
        #[cfg(not(any(test, feature = "harness")))]
        usual
    }

    /// The first of the periods in which a node sends or writes what it has, which is short: a run may be shorter than a period,
    /// or be broken off early.
    pub(crate) fn first_period(every: Duration) -> Duration {
        every.min(FIRST_PERIOD)
    }

    /// Is there a store that results go to?
    pub(crate) fn has_store(&self) -> bool {
        self.store_every.is_some() && self.repair != RepairMode::Naive
    }

    /// Does that rule hold?
    pub(crate) fn obeys(&self, rule: Rule) -> bool {
        #[cfg(any(test, feature = "harness"))]
        // Only simulations leave rules out: a real node obeys all of them, and this
        // costs it nothing.
        if self.without.contains(&rule) {
            return false;
        }
        let _ = rule;
        true
    }
}
