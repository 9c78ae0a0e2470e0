//! The table of `satin run --stats`.

use std::collections::BTreeMap;

use satin_runtime::observe::{
    advice::{Evidence, Finding, finding},
    events::{Event, NodeFigures, Record},
};

use crate::{pool::sites_of, tables};

/// The figures of every node, and of every site if there are several; `None` if no node told any.
#[must_use]
pub fn table(records: &[Record], width: Option<usize>) -> Option<String> {
    let sites = sites_of(records);
    let nodes = figures(records);
    if nodes.is_empty() {
        return None;
    }
    let site = |name: &str| sites.get(name).copied().unwrap_or("?");
    let nodes: Vec<(&str, &str, NodeFigures)> = (nodes.into_iter())
        .map(|(name, figures)| (site(name), name, figures))
        .collect();
    let mut by_site: BTreeMap<&str, (usize, NodeFigures)> = BTreeMap::new();
    for (site, _, figures) in &nodes {
        let (count, sum) = by_site.entry(site).or_default();
        *count += 1;
        add(sum, figures);
    }
    let mut all = NodeFigures::default();
    for (.., figures) in &nodes {
        add(&mut all, figures);
    }
    let counts = all.tally.rows().into_iter();
    let columns = Columns {
        spawns: all.spawns.is_some(),
        tally: counts
            .filter(|(_, count)| *count > 0)
            .map(|(name, _)| name)
            .collect(),
    };
    let mut header = vec!["node", "site", "jobs taken", "jobs given"];
    if columns.spawns {
        header.push("spawns");
    }
    // A request may bring several jobs, so neither is a part of the other.
    header.extend([
        "requests near",
        "jobs near",
        "requests far",
        "jobs far",
        "sent",
        "received",
        "idle",
    ]);
    header.extend(&columns.tally);
    let columns_in_all = header.len();
    let mut rows = Vec::new();
    let mut nodes = nodes;
    nodes.sort_by_key(|(site, name, _)| (*site, name.len(), *name));
    for (site, name, figures) in &nodes {
        rows.push(row(name, site, figures, &columns));
    }
    for (name, end) in silent(records) {
        let mut cells = vec![name.to_owned(), site(name).into(), end.into()];
        cells.resize(columns_in_all, String::new());
        rows.push(cells);
    }
    if by_site.len() > 1 {
        rows.push(vec![String::new(); columns_in_all]);
        for (site, (count, figures)) in &by_site {
            let name = format!("{count} node{}", if *count == 1 { "" } else { "s" });
            rows.push(row(&name, site, figures, &columns));
        }
        rows.push(row("all", "", &all, &columns));
    }
    let text = 0..2;
    Some(tables::fitting(header, rows, &text, DISPENSABLE, width))
}

/// Columns that can be left out where a screen is too narrow for all; the least important first.
const DISPENSABLE: &[&str] = &[
    "withdrawn",
    "misses",
    "duplicates",
    "kept",
    "orphans",
    "hits",
    "requests near",
    "requests far",
    "jobs near",
    "jobs far",
    "not_worth",
    "claims",
    "received",
    "spawns",
    "repairs",
    "sent",
];

/// What each node has counted that came to a regular end.
fn figures(records: &[Record]) -> Vec<(&str, NodeFigures)> {
    let counted = |record: &'_ Record| match &record.event {
        Event::Stats(figures) => Some(*figures),
        _ => None,
    };
    (records.iter())
        .filter_map(|record| Some((record.name.as_str(), counted(record)?)))
        .collect()
}

/// The nodes that told no figures, and why.
fn silent(records: &[Record]) -> Vec<(&str, &'static str)> {
    let of = |name: &str, is: fn(&Event) -> bool| {
        records
            .iter()
            .any(|record| record.name == name && is(&record.event))
    };
    let mut names: Vec<&str> = (records.iter())
        .filter(|record| matches!(record.event, Event::Node { .. }))
        .map(|record| record.name.as_str())
        .filter(|name| !of(name, |event| matches!(event, Event::Stats(_))))
        .collect();
    names.sort_unstable_by_key(|name| (name.len(), *name));
    names.dedup();
    let end = |name| match of(name, |event| matches!(event, Event::Dead { .. })) {
        true => "died",
        false => "no figures",
    };
    names.into_iter().map(|name| (name, end(name))).collect()
}

/// A pool is idle if its workers had nothing to do for so much of their time. Smaller: people look for a fault where there is none. Larger:
/// a pool that does half of what it could is called busy.
const IDLE: f64 = 0.25;

/// The figures in words: what they say about the pool as a whole, and what to do about it. `None` if no node told any, and of a
/// pool of one node.
#[must_use]
pub fn conclusion(records: &[Record], memory_is_limited: bool) -> Option<String> {
    let nodes = figures(records);
    if nodes.len() < 2 {
        return None;
    }
    let (mut time, mut all) = (0.0, NodeFigures::default());
    for (_, figures) in &nodes {
        time += f64::from(figures.threads.max(1)) * figures.seconds;
        add(&mut all, figures);
    }
    let idle = (time > 0.0).then(|| all.idle_s / time);
    let moved = bytes(all.bytes_sent);
    let begins = format!("{} idle, {moved} moved", share(idle));
    let stayed = all.tally.not_worth;
    let seen = Evidence {
        threads: all.threads,
        jobs: all.jobs,
        came: all.got_near + all.got_far,
        stayed,
        repairs: all.tally.repairs,
        memory_is_limited,
    };
    Some(match finding(&seen) {
        _ if idle.is_some_and(|idle| idle < IDLE) => format!("{begins}: the workers were busy"),
        Finding::Stayed => format!(
            "{begins}, and {stayed} times a job stayed because its data would have cost more than its work: larger jobs, or `Shared` \
             values for what many jobs read, may leave"
        ),
        Finding::NoneLeft => {
            format!(
                "{begins}, and no job left its node: the program was too short, or had no jobs to take"
            )
        }
        Finding::Unknown => begins,
        Finding::FewJobs => format!(
            "{begins}: there were not enough jobs for all workers, or the program was short beside its start"
        ),
    })
}

/// Columns that only some pools need.
struct Columns {
    spawns: bool,
    /// The counts of deaths and departures that are not zero everywhere.
    tally: Vec<&'static str>,
}

/// Sums; the time is the longest.
fn add(sum: &mut NodeFigures, more: &NodeFigures) {
    let NodeFigures {
        threads,
        seconds,
        jobs,
        given,
        spawns,
        asked_near,
        got_near,
        asked_far,
        got_far,
        bytes_sent,
        bytes_received,
        idle_s,
        // Percentiles do not add up.
        steal_us_p50: _,
        steal_us_p99: _,
        done: _,
        tally,
    } = more;
    sum.threads += threads;
    sum.seconds = sum.seconds.max(*seconds);
    sum.jobs += jobs;
    sum.given += given;
    if let Some(spawns) = spawns {
        *sum.spawns.get_or_insert(0) += spawns;
    }
    sum.asked_near += asked_near;
    sum.got_near += got_near;
    sum.asked_far += asked_far;
    sum.got_far += got_far;
    sum.bytes_sent += bytes_sent;
    sum.bytes_received += bytes_received;
    sum.idle_s += idle_s;
    sum.tally.add(tally);
}

fn row(name: &str, site: &str, figures: &NodeFigures, columns: &Columns) -> Vec<String> {
    let mut row = vec![
        name.into(),
        site.into(),
        figures.jobs.to_string(),
        figures.given.to_string(),
    ];
    if columns.spawns {
        row.push(
            figures
                .spawns
                .map_or("-".into(), |spawns| spawns.to_string()),
        );
    }
    row.extend([
        figures.asked_near.to_string(),
        figures.got_near.to_string(),
        figures.asked_far.to_string(),
        figures.got_far.to_string(),
        bytes(figures.bytes_sent),
        bytes(figures.bytes_received),
        share(idle(figures, None)),
    ]);
    let counts = figures.tally.rows().into_iter();
    let shown = counts.filter(|(name, _)| columns.tally.contains(name));
    row.extend(shown.map(|(_, count)| count.to_string()));
    row
}

/// The part of the workers' time in which they had nothing to do, since the last look if there was one.
#[must_use]
pub fn idle(now: &NodeFigures, before: Option<&NodeFigures>) -> Option<f64> {
    // A node that has begun again has counted less.
    let before = before.filter(|before| before.seconds < now.seconds);
    let (idle_s, seconds) = before.map_or((0.0, 0.0), |before| (before.idle_s, before.seconds));
    let time = f64::from(now.threads.max(1)) * (now.seconds - seconds);
    (time > 0.0).then(|| (now.idle_s - idle_s) / time)
}

/// A part of the whole in percent.
#[must_use]
pub fn share(part: Option<f64>) -> String {
    part.map_or("-".into(), |part| {
        format!("{:.0} %", 100.0 * part.clamp(0.0, 1.0))
    })
}

/// Three digits or so, and a unit.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && number < 100.0);
    format!("{number:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let record = |name: &str, event| Record {
            event,
            name: name.into(),
            at_ms: 0,
        };
        let node = |name: &str, site: &str| {
            let addr = ([127, 0, 0, 1], 1).into();
            let site = site.into();
            record(
                name,
                Event::Node {
                    site,
                    pid: 1,
                    addr,
                    threads: 1,
                },
            )
        };
        let stats = |name: &str, jobs| {
            record(
                name,
                Event::Stats(NodeFigures {
                    threads: 1,
                    seconds: 2.0,
                    jobs,
                    got_far: jobs,
                    asked_far: 12,
                    bytes_sent: 1_234_567,
                    idle_s: 0.5,
                    ..NodeFigures::default()
                }),
            )
        };
        vec![
            node("delft-0", "delft"),
            node("delft-1", "delft"),
            node("leiden-0", "leiden"),
            stats("leiden-0", 5),
            stats("delft-0", 0),
            stats("delft-1", 7),
        ]
    }

    #[test]
    fn a_line_for_each_node_and_each_site() {
        let table = table(&records(), None).expect("figures");
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 8, "{table}");
        assert_eq!(lines[1][..3], ["delft-0", "delft", "0"]);
        assert_eq!(
            lines[3].join(" "),
            "leiden-0 leiden 5 0 0 0 12 5 1.2 MB 0 B 25 %"
        );
        assert_eq!(lines[5][..4], ["2", "nodes", "delft", "7"]);
        assert_eq!(lines[7].join(" "), "all 12 0 0 0 36 12 3.7 MB 0 B 25 %");
    }

    #[test]
    fn repairs_are_shown_where_there_were_any() {
        let mut records = records();
        let Event::Stats(figures) = &mut records[3].event else {
            panic!("figures");
        };
        figures.tally.repairs = 2;
        figures.tally.claims = 5;
        figures.tally.hits = 4;
        let table = table(&records, None).expect("figures");
        let line = table.lines().nth(3).expect("leiden");
        let last = |line: &str, count: usize| {
            let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
            words[words.len() - count..].join(" ")
        };
        let header = table.lines().next().expect("a header");
        assert_eq!(last(header, 4), "idle repairs claims hits");
        assert_eq!(last(line, 3), "2 5 4");
    }

    #[test]
    fn a_node_that_died_has_a_row() {
        let mut records = records();
        let gone = records.remove(5); // the figures of delft-1
        let dead = Event::Dead {
            site: "delft".into(),
        };
        records.push(Record {
            event: dead,
            ..gone.clone()
        });
        let shown = table(&records, None).expect("figures");
        assert!(
            shown
                .lines()
                .any(|line| line.split_whitespace().eq(["delft-1", "delft", "died"])),
            "{shown}"
        );
        records.pop();
        let shown = table(&records, None).expect("figures");
        assert!(shown.contains("no figures"), "{shown}");
    }

    #[test]
    fn the_figures_in_words() {
        let mut records = records();
        let mut said = |change: fn(&mut NodeFigures)| {
            for record in &mut records {
                if let Event::Stats(figures) = &mut record.event {
                    change(figures);
                }
            }
            conclusion(&records, false).expect("figures")
        };
        assert!(said(|_| ()).starts_with("25 % idle, 3.7 MB moved: there were not enough"));
        assert!(
            said(|figures| figures.idle_s = 0.1)
                .ends_with("5 % idle, 3.7 MB moved: the workers were busy")
        );
        let no_jobs = said(|figures| (figures.idle_s, figures.jobs, figures.got_far) = (1.8, 0, 0));
        assert!(
            no_jobs.starts_with("90 % idle, 3.7 MB moved, and no job left"),
            "{no_jobs}"
        );
        let stayed = said(|figures| figures.tally.not_worth = 100);
        assert!(stayed.contains("300 times a job stayed"), "{stayed}");
        assert_eq!(conclusion(&records[..4], false), None, "one node");
    }

    #[test]
    fn one_site_needs_no_sums_and_no_figures_no_table() {
        let one: Vec<Record> = records()
            .into_iter()
            .filter(|record| record.name.starts_with("delft"))
            .collect();
        assert_eq!(table(&one, None).expect("figures").lines().count(), 3);
        assert_eq!(table(&[], None), None);
    }

    #[test]
    fn sizes() {
        let all = [0, 999, 1000, 99_949, 123_456, 5_000_000_000].map(bytes);
        assert_eq!(
            all,
            ["0 B", "999 B", "1.0 kB", "99.9 kB", "123 kB", "5.0 GB"]
        );
    }
}
