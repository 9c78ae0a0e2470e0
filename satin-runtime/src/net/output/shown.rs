//! What other nodes print, on the terminal of the one that runs `main`.

use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::Builder,
    time::Duration,
};

use quinn::ClientConfig;
use tokio::sync::watch;

use super::{NodeOutput, OutputNews};
use crate::{
    net::{
        Observer, interfaces, limits,
        observer::{Dialler, ObserverError},
        progress::{NetworkProgress, NodeStage},
        settings::Join,
    },
    observe::{log, output, repeats},
};

/// Time after which a node that could not find its own pool looks again. Too short: it looks for nothing. Too long: lines come late.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Shows the output of other nodes while this one is master.
pub(in crate::net) struct OutputShown {
    is_over: watch::Sender<bool>,
    has_ended: Mutex<bool>,
    ends: Condvar,
}

impl OutputShown {
    pub(in crate::net) fn new() -> OutputShown {
        OutputShown {
            is_over: watch::Sender::new(false),
            has_ended: Mutex::new(false),
            ends: Condvar::new(),
        }
    }

    /// Starts the thread. The node listens at `addr`.
    pub(in crate::net) fn start(
        self: &Arc<Self>,
        client: ClientConfig,
        pool: String,
        addr: SocketAddr,
        progress: Arc<NetworkProgress>,
    ) {
        let dialler = Dialler::new(client, pool);
        let here = Arc::clone(self);
        let show = move || {
            if let Err(error) = here.run(&dialler, addr, &progress) {
                tracing::warn!("what other nodes print is not shown here: {error}");
            }
            here.end();
        };
        let thread = Builder::new().name("satin-shown".into());
        if let Err(error) = log::spawn(thread, show) {
            tracing::warn!("what other nodes print is not shown here: no thread: {error}");
            self.end();
        }
    }

    /// Shows all that other nodes have printed until now, and nothing after that; waits for it a moment.
    pub(in crate::net) fn finish(&self) {
        self.is_over.send_replace(true);
        let has_ended = self.has_ended.lock();
        let has_ended = has_ended.unwrap_or_else(PoisonError::into_inner);
        let most = 2 * limits::LAST_OUTPUT;
        drop(
            self.ends
                .wait_timeout_while(has_ended, most, |ended| !*ended),
        );
    }

    fn end(&self) {
        *self
            .has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.ends.notify_all();
    }

    fn run(
        &self,
        dialler: &Dialler,
        addr: SocketAddr,
        progress: &NetworkProgress,
    ) -> Result<(), ObserverError> {
        let observer = Observer::dialling(
            Join::Hosts(vec![interfaces::reached_here(addr).to_string()]),
            dialler.clone(),
        )?;
        while wait_to_be_master(progress) && !*self.is_over.borrow() {
            let is_over = self.is_over.subscribe();
            let followed = observer.follow_output_until(
                is_over,
                || progress.is_master(),
                // The master sees its own output.
                |node| !node.is_master,
                |news| show(&news),
            );
            if followed.is_err() {
                std::thread::sleep(TRY_AGAIN);
            }
        }
        Ok(())
    }
}

/// Waits until this node is master; false if it will not be any more.
fn wait_to_be_master(progress: &NetworkProgress) -> bool {
    progress.wait(|now| match now.stage {
        _ if now.closed => Some(false),
        NodeStage::In { is_master: true } => Some(true),
        NodeStage::Ended(_) | NodeStage::Failed(_) => Some(false),
        _ => None,
    })
}

fn show(news: &OutputNews) {
    match &news.what {
        NodeOutput::Line(line) => {
            let whole = [news.prefix().as_bytes(), &line.text, b"\n"].concat();
            // An error: the terminal is gone.
            let _ = output::show(&whole);
        }
        NodeOutput::Dropped(count) => repeats::warn(
            "lines that a node printed are not shown",
            &news.name,
            format_args!("{count} lines came faster than they could be shown"),
        ),
        NodeOutput::NotKept => repeats::warn(
            "what a node prints is not shown here",
            &news.name,
            "the node was started without SATIN_OUTPUT=all",
        ),
        NodeOutput::NoAnswer(why) => {
            repeats::warn("what a node prints is not shown here", &news.name, why);
        }
    }
}
