use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use anyhow::{Result, bail};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Cell, Gauge, Paragraph, Row, Table, TableState},
};
use satin_cli::stats::{bytes, share};
use satin_runtime::{
    observe::history::{HistoryEvent, NodePicture, NodeState, Picture, SitePicture},
    window::{Views, Window},
};

use super::at::At;

/// Watch a running pool in the terminal, and ask nodes to leave
#[derive(clap::Args)]
#[command(after_help = "\
Keys: up and down choose a node, d asks it to leave, D all nodes of its site
(both after a question), s sorts by another column, q ends.

Columns: the part of a node's workers' time in which they ran something, the
stolen jobs that it ran each second, the bytes that it sent and received each
second, and why its workers have nothing to do.

Examples:
  satin top --join 192.0.2.7:7777 --credential pool.pem
  satin top --join file:/shared/pool --credential pool.pem")]
pub struct Top {
    #[command(flatten)]
    at: At,
}

/// The time between two looks at the keyboard and the pool. Too short: the terminal flickers. Too long: keys seem to be lost.
const TICK: Duration = Duration::from_millis(250);

impl Top {
    pub fn run(self) -> Result<ExitCode> {
        if !io::stdout().is_terminal() {
            bail!(
                "`satin top` needs a terminal; where there is none, use `satin status` or `satin status --json`"
            );
        }
        // Errors that need no screen come first: a wrong credential, nobody there.
        let pool = self.at.observer()?.status()?.name;
        let window = self.at.window(Views::default(), &pool)?;
        let mut terminal = ratatui::init();
        let outcome = Screen::new(&window).show(&mut terminal);
        ratatui::restore();
        outcome.map(|()| ExitCode::SUCCESS)
    }
}

/// The column by which nodes are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    Site,
    Busy,
    Jobs,
    Bytes,
}

impl SortBy {
    fn next(self) -> SortBy {
        match self {
            SortBy::Site => SortBy::Busy,
            SortBy::Busy => SortBy::Jobs,
            SortBy::Jobs => SortBy::Bytes,
            SortBy::Bytes => SortBy::Site,
        }
    }

    fn sort(self, nodes: &mut [NodePicture]) {
        nodes.sort_by(|a, b| (&a.site, &a.name).cmp(&(&b.site, &b.name)));
        let by = |value: fn(&NodePicture) -> f64| {
            move |a: &NodePicture, b: &NodePicture| value(b).total_cmp(&value(a))
        };
        match self {
            SortBy::Site => {}
            SortBy::Busy => nodes.sort_by(by(|node| 1.0 - node.idle_share.unwrap_or(1.0))),
            SortBy::Jobs => nodes.sort_by(by(|node| node.jobs_per_s)),
            SortBy::Bytes => {
                nodes.sort_by(by(|node| node.bytes_sent_per_s + node.bytes_received_per_s));
            }
        }
    }
}

/// What is on the screen.
struct Screen<'w> {
    window: &'w Window,
    sort: SortBy,
    /// The name of the chosen node.
    chosen: Option<String>,
    /// The nodes that are to leave if the person says yes, and what they are called together.
    asks: Option<(Vec<String>, String)>,
    /// What came of the last order.
    said: Option<String>,
    /// What comes of orders, from the threads that wait for it.
    outcomes: (Sender<String>, Receiver<String>),
}

/// What a key asks for.
#[derive(PartialEq, Eq, Debug)]
enum Wish {
    GoOn,
    End,
    Drain(Vec<String>),
}

impl<'w> Screen<'w> {
    fn new(window: &'w Window) -> Screen<'w> {
        Screen {
            window,
            sort: SortBy::Site,
            chosen: None,
            asks: None,
            said: None,
            outcomes: channel(),
        }
    }

    /// Asks nodes to leave. Those that do not answer take a while, in which the screen goes on.
    fn drain(&mut self, names: Vec<String>) {
        let Some(steering) = self.window.steering() else {
            return;
        };
        self.said = Some(format!("asking {}", names.join(", ")));
        let outcome = self.outcomes.0.clone();
        std::thread::spawn(move || {
            let said = match steering.drain(names.clone()) {
                Ok(()) => format!("asked to leave: {}", names.join(", ")),
                Err(why) => why,
            };
            let _ = outcome.send(said);
        });
    }

    fn show(mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        loop {
            let (mut picture, events) = {
                let history = self.window.history();
                (history.picture(), history.events_since(0).0)
            };
            self.sort.sort(&mut picture.nodes);
            if let Ok(said) = self.outcomes.1.try_recv() {
                self.said = Some(said);
            }
            terminal.draw(|frame| self.draw(frame, &picture, &events))?;
            if !event::poll(TICK)? {
                continue;
            }
            let Event::Key(key) = event::read()? else {
                continue;
            };
            match self.wish(key, &picture) {
                Wish::GoOn => {}
                Wish::End => return Ok(()),
                Wish::Drain(names) => self.drain(names),
            }
        }
    }

    fn wish(&mut self, key: KeyEvent, picture: &Picture) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::GoOn;
        }
        let is_interrupt =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if is_interrupt {
            return Wish::End;
        }
        if let Some((names, _)) = self.asks.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Wish::Drain(names),
                _ => Wish::GoOn,
            };
        }
        self.said = None;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Down | KeyCode::Char('j') => self.choose(picture, 1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(picture, -1),
            KeyCode::Char('d') => self.ask_for(picture, |node, chosen| node.name == chosen.name),
            KeyCode::Char('D') => self.ask_for(picture, |node, chosen| node.site == chosen.site),
            _ => {}
        }
        Wish::GoOn
    }

    fn place_of_chosen(&self, picture: &Picture) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        picture.nodes.iter().position(|node| node.name == *chosen)
    }

    fn choose(&mut self, picture: &Picture, step: isize) {
        let last = picture.nodes.len().saturating_sub(1);
        let place = match self.place_of_chosen(picture) {
            Some(place) => place.saturating_add_signed(step).min(last),
            None => 0,
        };
        self.chosen = picture.nodes.get(place).map(|node| node.name.clone());
    }

    /// Asks whether the nodes are to leave that belong to the chosen one.
    fn ask_for(&mut self, picture: &Picture, belongs: fn(&NodePicture, &NodePicture) -> bool) {
        let Some(chosen) = self.place_of_chosen(picture) else {
            self.said = Some("choose a node first: up and down".into());
            return;
        };
        let chosen = &picture.nodes[chosen];
        let stays = |node: &&NodePicture| node.state == NodeState::Joined;
        let meant = picture.nodes.iter().filter(stays);
        let names: Vec<String> = meant
            .filter(|node| belongs(node, chosen))
            .map(|node| node.name.clone())
            .collect();
        match names.len() {
            0 => self.said = Some(format!("{} is not there to be asked", chosen.name)),
            1 => {
                let what = names[0].clone();
                self.asks = Some((names, what));
            }
            count => {
                let what = format!("all {count} nodes of {}", chosen.site);
                self.asks = Some((names, what));
            }
        }
    }

    fn draw(&self, frame: &mut Frame, picture: &Picture, events: &[HistoryEvent]) {
        let sites = picture.sites.len().clamp(1, 6) as u16 + 3;
        let log = (frame.area().height / 4).clamp(3, 10);
        let [head, between, nodes, lines, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(sites),
            Constraint::Min(4),
            Constraint::Length(log),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        draw_head(frame, head, picture);
        draw_sites(frame, between, &picture.sites);
        self.draw_nodes(frame, nodes, picture);
        draw_events(frame, lines, events);
        frame.render_widget(self.foot(), foot);
    }

    fn draw_nodes(&self, frame: &mut Frame, area: Rect, picture: &Picture) {
        let head = |name: &'static str, by: SortBy| match self.sort == by {
            true => Cell::from(format!("{name} ↓")),
            false => Cell::from(name),
        };
        let header = Row::new([
            Cell::from("node"),
            head("site", SortBy::Site),
            Cell::from("state"),
            Cell::from("threads"),
            head("busy", SortBy::Busy),
            head("jobs/s", SortBy::Jobs),
            head("sent/s", SortBy::Bytes),
            Cell::from("received/s"),
            Cell::from("why idle"),
        ])
        .style(Style::new().add_modifier(Modifier::BOLD));
        let rows = picture.nodes.iter().map(node_row);
        let widths = [
            Constraint::Min(12),
            Constraint::Length(12),
            Constraint::Length(10),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(10),
            Constraint::Fill(1),
        ];
        let table = Table::new(rows, widths)
            .header(header)
            .block(Block::bordered().title(" nodes "))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(self.place_of_chosen(picture));
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn foot(&self) -> Paragraph<'_> {
        Paragraph::new(match (&self.asks, &self.said) {
            (Some((_, what)), _) => {
                Line::from(format!("ask {what} to leave? y: yes, any other key: no")).yellow()
            }
            (None, Some(said)) => Line::from(said.as_str()).yellow(),
            (None, None) => Line::from(
                "↑↓ choose a node   d ask it to leave   D its whole site   s sort   q end",
            )
            .dim(),
        })
    }
}

fn draw_head(frame: &mut Frame, area: Rect, picture: &Picture) {
    let totals = &picture.totals;
    let words = format!(
        "pool {}: {} node{}, {} threads, {} busy, {}/s between nodes",
        picture.pool,
        totals.nodes,
        if totals.nodes == 1 { "" } else { "s" },
        totals.threads,
        share(totals.idle_share.map(|idle| 1.0 - idle)),
        bytes(totals.bytes_sent_per_s as u64),
    );
    let [line, bar] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    frame.render_widget(Paragraph::new(words).bold(), line);
    match (&picture.progress, picture.ended) {
        (_, Some(code)) => {
            let said = format!("the pool has ended, exit code {code}");
            frame.render_widget(Paragraph::new(said).yellow(), bar);
        }
        (Some(progress), None) => {
            let guess = if progress.is_guess { " (a guess)" } else { "" };
            let gauge = Gauge::default()
                .ratio(progress.done.clamp(0.0, 1.0))
                .label(format!("{:.0} % done{guess}", 100.0 * progress.done))
                .gauge_style(Style::new().fg(Color::Blue));
            frame.render_widget(gauge, bar);
        }
        (None, None) => frame.render_widget(Paragraph::new("no root job is under way").dim(), bar),
    }
}

fn draw_sites(frame: &mut Frame, area: Rect, sites: &[SitePicture]) {
    let header = Row::new(["site", "nodes", "threads", "busy", "jobs/s", "sent/s"])
        .style(Style::new().add_modifier(Modifier::BOLD));
    let rows = sites.iter().map(|site| {
        Row::new([
            site.name.clone(),
            site.nodes.to_string(),
            site.threads.to_string(),
            share(site.idle_share.map(|idle| 1.0 - idle)),
            format!("{:.1}", site.jobs_per_s),
            bytes(site.bytes_sent_per_s as u64),
        ])
    });
    let widths = [
        Constraint::Min(12),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(9),
    ];
    let table = Table::new(rows, widths)
        .header(header)
        .block(Block::bordered().title(" sites "));
    frame.render_widget(table, area);
}

fn node_row(node: &NodePicture) -> Row<'_> {
    let (state, style) = match (node.state, node.is_master) {
        (NodeState::Joined, true) => ("master", Style::new().bold()),
        (NodeState::Joined, false) => ("in", Style::new()),
        (NodeState::Draining, _) => ("leaving", Style::new().yellow()),
        (NodeState::NoAnswer, _) => ("no answer", Style::new().yellow()),
        (NodeState::Left, _) => ("left", Style::new().dim()),
        (NodeState::Dead, _) => ("dead", Style::new().red()),
    };
    let is_gone = matches!(node.state, NodeState::Left | NodeState::Dead);
    let rate = |per_s: f64| match is_gone {
        true => "-".to_owned(),
        false => bytes(per_s as u64),
    };
    let busy = node.idle_share.filter(|_| !is_gone);
    Row::new([
        node.name.clone(),
        node.site.clone(),
        state.into(),
        node.threads.to_string(),
        share(busy.map(|idle| 1.0 - idle)),
        if is_gone {
            "-".into()
        } else {
            format!("{:.1}", node.jobs_per_s)
        },
        rate(node.bytes_sent_per_s),
        rate(node.bytes_received_per_s),
        node.why.clone(),
    ])
    .style(style)
}

fn draw_events(frame: &mut Frame, area: Rect, events: &[HistoryEvent]) {
    let room = usize::from(area.height.saturating_sub(2));
    let since = events.first().map_or(0, |event| event.at_ms);
    let latest = events.iter().rev().take(room);
    let lines: Vec<Line> = latest
        .map(|event| {
            let at = event.at_ms.saturating_sub(since) as f64 / 1000.0;
            Line::from(vec![
                Span::from(format!("{at:>8.1} s  ")).dim(),
                Span::from(event.text.as_str()),
            ])
        })
        .collect();
    let block = Block::bordered().title(" events, the latest first ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
