use std::{
    collections::HashMap,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use satin_cli::{
    stats::{bytes, idle, share},
    tables, units,
};
use satin_runtime::{
    net::{
        Observer,
        observer::{SeenNode, SeenPool},
    },
    observe::events::NodeFigures,
};
use serde::Serialize;

use super::at::At;

/// Show the nodes of a running pool, and what they do
#[derive(clap::Args)]
#[command(after_help = "\
Columns: the jobs that a node took from others and that others took from it, the
bytes that it sent and received, and the part of its workers' time in which they
had nothing to do (with --watch since the last look, else since it was started).

Examples:
  satin status --join 192.0.2.7:7777 --credential pool.pem
  satin status --watch --join file:/shared/pool --credential pool.pem
  satin status --json --join 192.0.2.7:7777 --credential pool.pem --pool fib")]
pub struct Status {
    /// Print JSON: one object, with --watch one on each line
    #[arg(long)]
    json: bool,
    /// Look again after so long, such as 5s, until Ctrl-C or the end of the pool [default time: 2s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", require_equals = true, value_parser = units::duration)]
    watch: Option<Duration>,
    #[command(flatten)]
    at: At,
}

/// A node, and what it has counted: nothing if it does not answer.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    node: SeenNode,
    figures: Option<NodeFigures>,
}

#[derive(Serialize)]
struct Look {
    pool: String,
    nodes: Vec<Row>,
}

impl Status {
    pub fn run(self) -> Result<ExitCode> {
        let observer = self.at.observer()?;
        let (mut before, mut known) = (HashMap::new(), Vec::new());
        loop {
            let look = look(&observer, &known)?;
            known = look.nodes.iter().map(|row| row.node.clone()).collect();
            let text = match self.json {
                true => serde_json::to_string(&look)? + "\n",
                false => show(&look, &before, tables::width(io::stdout().is_terminal())),
            };
            let mut stdout = io::stdout().lock();
            if self.watch.is_some() && !self.json && stdout.is_terminal() {
                write!(stdout, "{CLEAR}")?;
            }
            stdout.write_all(text.as_bytes())?;
            stdout.flush()?;
            let Some(every) = self.watch else {
                return Ok(ExitCode::SUCCESS);
            };
            before = look
                .nodes
                .into_iter()
                .filter_map(|row| Some((row.node.addr, row.figures?)))
                .collect();
            std::thread::sleep(every);
        }
    }
}

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Any node may answer that was there at the last look, not only the one that was joined.
fn look(observer: &Observer, known: &[SeenNode]) -> Result<Look> {
    let SeenPool { name, nodes } = observer.status_again(known)?;
    let figures = observer.figures(&nodes);
    let rows = nodes.into_iter().zip(figures);
    Ok(Look {
        pool: name,
        nodes: rows.map(|(node, figures)| Row { node, figures }).collect(),
    })
}

/// The table; `before` holds what the nodes had counted at the last look.
fn show(
    look: &Look,
    before: &HashMap<std::net::SocketAddr, NodeFigures>,
    width: Option<usize>,
) -> String {
    let header = vec![
        "node",
        "site",
        "address",
        "state",
        "threads",
        "up",
        "jobs taken",
        "jobs given",
        "sent",
        "received",
        "idle",
    ];
    let mut rows = Vec::new();
    for Row { node, figures } in &look.nodes {
        let state = match (node.is_leaving, node.is_master, figures) {
            (_, _, None) => "no answer",
            (true, true, _) => "master, leaving",
            (true, false, _) => "leaving",
            (false, true, _) => "master",
            (false, false, _) => "in",
        };
        let mut cells = vec![
            node.name.clone(),
            node.site.clone(),
            node.addr.to_string(),
            state.into(),
            node.threads.to_string(),
        ];
        match figures {
            Some(figures) => cells.extend([
                uptime(figures.seconds),
                figures.jobs.to_string(),
                figures.given.to_string(),
                bytes(figures.bytes_sent),
                bytes(figures.bytes_received),
                share(idle(figures, before.get(&node.addr))),
            ]),
            None => cells.extend(std::iter::repeat_n("-".to_owned(), 6)),
        }
        rows.push(cells);
    }
    let dispensable = ["received", "up", "sent", "jobs given", "site"];
    let table = tables::fitting(header, rows, &(0..4), &dispensable, width);
    let done = look.nodes.iter().find_map(|row| row.figures?.done);
    let done = done.map_or(String::new(), |done| {
        format!(", {} done", share(Some(done)))
    });
    let nodes = look.nodes.len();
    let threads: u32 = look.nodes.iter().map(|row| row.node.threads).sum();
    format!(
        "pool {}: {nodes} node{}, {threads} thread{}{done}\n{}\n",
        look.pool,
        plural(nodes),
        plural(threads as usize),
        table
    )
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A time in the largest unit that makes sense to people.
fn uptime(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        ..3600.0 => format!("{:.0} min", seconds / 60.0),
        ..86_400.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(seconds: f64, idle_s: f64) -> NodeFigures {
        NodeFigures {
            threads: 2,
            seconds,
            idle_s,
            done: Some(0.42),
            jobs: 7,
            bytes_sent: 1_234_567,
            ..NodeFigures::default()
        }
    }

    fn row(name: &str, is_master: bool, figures: Option<NodeFigures>) -> Row {
        let node = SeenNode {
            name: name.into(),
            site: "delft".into(),
            addr: ([192, 0, 2, name.len() as u8], 7777).into(),
            threads: 2,
            is_master,
            is_leaving: false,
        };
        Row { node, figures }
    }

    fn lines(text: &str) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    #[test]
    fn a_line_for_each_node_and_none_is_left_out() {
        let look = Look {
            pool: "fib".into(),
            nodes: vec![
                row("a", true, Some(counted(100.0, 50.0))),
                row("bc", false, None),
            ],
        };
        let shown = lines(&show(&look, &HashMap::new(), None));
        assert_eq!(shown[0], "pool fib: 2 nodes, 4 threads, 42 % done");
        assert_eq!(
            shown[2],
            "a delft 192.0.2.1:7777 master 2 2 min 7 0 1.2 MB 0 B 25 %"
        );
        assert_eq!(shown[3], "bc delft 192.0.2.2:7777 no answer 2 - - - - - -");
        // Since the last look it was idle for 8 of 2 x 10 s.
        let addr = look.nodes[0].node.addr;
        let before = HashMap::from([(addr, counted(90.0, 42.0))]);
        let shown = lines(&show(&look, &before, None));
        assert!(shown[2].ends_with(" 40 %"), "{shown:?}");
    }

    #[test]
    fn times() {
        let all = [0.4, 59.0, 90.0, 5400.0, 200_000.0].map(uptime);
        assert_eq!(all, ["0 s", "59 s", "2 min", "1.5 h", "2.3 d"]);
    }
}
