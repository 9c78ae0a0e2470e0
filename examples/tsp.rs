//! The shortest round trip through all cities, by branch and bound on instances in the format of TSPLIB.
//!
//! A job is a path from the first city, and its children append one city more. Below a path lies no tour cheaper than the
//! path plus a spanning tree of the cities to come (Held, Karp, "The traveling-salesman problem and minimum spanning trees",
//! 1970 and 1971: the tree is measured with costs shifted by a potential of each city, which changes no tour's rank but
//! makes the tree much more like a tour).
//!
//! Shows a method as a job, and pruning by what others have found, wherever they are: the best cost is a bound. It leaves out
//! what is strictly worse, so what is returned through the calls is right on its own account; the bound only saves work.

mod common;

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use common::Mode;
use common::input::{Words, parse_file};
use common::progress::{Counter, Spinner};
use common::random::Random;
use satin::Min;
use serde::{Deserialize, Serialize};

/// Nodes of the search tree visited by this process.
static VISITED: Counter = Counter::new();

satin::bound! {
    /// Cost of the cheapest tour that anybody has come across in the search.
    static BEST: Min<u32>;
}

/// Optima of TSPLIB, by file name.
const KNOWN: [(&str, u32); 11] = [
    ("burma14", 3323),
    ("ulysses16", 6859),
    ("gr17", 2085),
    ("gr21", 2707),
    ("ulysses22", 7013),
    ("gr24", 1272),
    ("fri26", 937),
    ("bayg29", 1610),
    ("bays29", 2020),
    ("dantzig42", 699),
    ("att48", 10628),
];

/// Finds the shortest round trip through all cities
#[derive(Parser)]
#[command(after_help = "Examples:
  tsp                       # 14 cities in Burma
  tsp gr21.tsp
  tsp --random 64 --seed 2  # cities scattered over a square
  tsp bays29.tsp --compare")]
struct Cli {
    /// Symmetric instance in the format of TSPLIB [default: burma14, built in]
    file: Option<PathBuf>,
    /// Without FILE: so many cities at random in the plane
    #[arg(long, value_name = "CITIES", conflicts_with = "file", value_parser = clap::value_parser!(u8).range(3..=64))]
    random: Option<u8>,
    /// Where the sequence of the random cities starts
    #[arg(long, default_value_t = 1, requires = "random")]
    seed: u64,
    /// Begin with the tour in the order of the cities' numbers, not with a good one
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let (name, distances) = match (&cli.file, cli.random) {
        (Some(path), _) => {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (name, parse_file(path, parse)?)
        }
        (None, Some(cities)) => (
            format!("random instance {}", cli.seed),
            Distances::random(cities, cli.seed),
        ),
        (None, None) => (
            "burma14".to_owned(),
            Distances::from_metric(&BURMA14, geographical),
        ),
    };
    let known = KNOWN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, cost)| cost);
    let heuristic = if cli.cold {
        distances.tour_in_order()
    } else {
        distances.heuristic_tour()
    };
    let problem = Problem::new(distances, heuristic.cost);
    println!(
        "{name}: {} cities, at least {}, at most {}",
        problem.distances.cities,
        problem.bound(&problem.start()),
        heuristic.cost
    );

    let ceiling = problem.ceiling;
    let spinner = Spinner::start(move || {
        format!(
            "{}, best {}",
            VISITED.nodes(),
            BEST.get().unwrap_or(ceiling)
        )
    });
    let found = |tour: Option<Tour>| Found {
        tour: tour.unwrap_or_else(|| heuristic.clone()),
        bound: BEST.get().unwrap_or(ceiling),
    };
    let run = cli.mode.measure(
        || VISITED.reset(),
        |()| found(problem.search(problem.start())),
        |()| found(satin::seq!(problem.search(problem.start()))),
        |found| problem.distances.check(found, known),
    )?;
    drop(spinner);

    let verdict = if known.is_some() {
        "the known optimum"
    } else {
        "proved optimal, not checked: no known answer"
    };
    println!("tour {}", run.answer.tour);
    println!("cost {} ({verdict})", run.answer.tour.cost);
    VISITED.report();
    run.report();
    Ok(())
}

/// A set of cities, a bit each.
type Cities = u64;

const CITIES_MAX: usize = Cities::BITS as usize;

fn each(mut cities: Cities) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (cities != 0).then(|| {
            let city = cities.trailing_zeros() as usize;
            cities &= cities - 1;
            city
        })
    })
}

/// The beginning of a tour that starts at city 0. Twenty-four bytes with its bound, so that a job is cheap to spawn.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Path {
    visited: Cities,
    cost: u32,
    /// No tour that begins so costs less.
    bound: u32,
    last: u8,
}

/// A tour, or the end of one from some city on.
#[derive(Clone, Serialize, Deserialize)]
struct Tour {
    cost: u32,
    /// Backwards, so that a search that returns puts its own city at the end.
    reversed: Vec<u8>,
}

impl std::fmt::Display for Tour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for city in self.reversed.iter().rev() {
            write!(f, "{} ", city + 1)?;
        }
        write!(f, "1")
    }
}

/// What every job needs to know.
#[derive(Serialize, Deserialize)]
struct Problem {
    distances: Distances,
    /// Distances in units of 1 / [`SCALE`], plus the potentials of both ends.
    shifted: Vec<i64>,
    /// For each city, chosen such that the spanning tree of the shifted distances resembles a tour.
    potential: Vec<i64>,
    /// Cost of the tour that is known from the start: searches return only what is cheaper.
    ceiling: u32,
}

/// What came out.
struct Found {
    tour: Tour,
    /// The shared bound's value, or the ceiling if nobody found anything cheaper.
    bound: u32,
}

/// Potentials are integers; in units of whole distances they would be too coarse.
const SCALE: i64 = 256;

#[satin::spawnable]
impl Problem {
    /// The cheapest tour that begins with this path, if it costs less than the ceiling and no more than the best so far.
    #[spawn]
    fn search(&self, path: Path) -> Option<Tour> {
        // What only equals the best is searched: whoever has found the best might be lost, with its tour. What equals
        // the ceiling is not: the caller has that tour.
        if path.bound >= self.ceiling || BEST.prunes(&path.bound) {
            return None;
        }
        VISITED.add(1);
        if path.visited == self.all() {
            BEST.offer(path.bound);
            return Some(Tour {
                cost: path.bound,
                reversed: vec![path.last],
            });
        }
        let mut tours = Vec::new();
        for next in self.extensions(&path) {
            tours.push(self.search(next));
        }
        let mut cheapest = tours.into_iter().flatten().min_by_key(|tour| tour.cost)?;
        cheapest.reversed.push(path.last);
        Some(cheapest)
    }
}

impl Problem {
    fn new(distances: Distances, ceiling: u32) -> Self {
        let n = distances.cities;
        let mut problem = Self {
            distances,
            shifted: vec![0; n * n],
            potential: vec![0; n],
            ceiling,
        };
        problem.shift(vec![0; n]);
        problem.raise_bound();
        problem
    }

    fn all(&self) -> Cities {
        Cities::MAX >> (CITIES_MAX - self.distances.cities)
    }

    fn start(&self) -> Path {
        let path = Path {
            visited: 1,
            cost: 0,
            bound: 0,
            last: 0,
        };
        Path {
            bound: self.bound(&path),
            ..path
        }
    }

    /// The paths with one city more that are worth a look, the most promising first.
    fn extensions(&self, path: &Path) -> Vec<Path> {
        let unvisited = self.all() & !path.visited;
        let mut extensions: Vec<Path> = each(unvisited)
            // Of a tour and its reverse only the one with city 1 before city 2.
            .filter(|&city| city != 2 || path.visited & 0b10 != 0)
            .map(|city| {
                let cost = path.cost + self.distances.between(path.last.into(), city);
                let extended = Path {
                    visited: path.visited | 1 << city,
                    cost,
                    bound: 0,
                    last: city as u8,
                };
                // A bound may happen to be lower than the one before, which still holds.
                Path {
                    bound: self.bound(&extended).max(path.bound),
                    ..extended
                }
            })
            .filter(|extended| extended.bound < self.ceiling)
            .collect();
        extensions.sort_unstable_by_key(|extended| extended.bound);
        extensions
    }

    /// No tour that begins with this path costs less; of a complete tour, the cost.
    fn bound(&self, path: &Path) -> u32 {
        let last = usize::from(path.last);
        let rest = self.all() & !path.visited;
        if rest == 0 {
            return path.cost + self.distances.between(last, 0);
        }
        // From the last city into the rest, through it, and out of it to city 0. Such a path has both potentials of each
        // city in the rest, and one of each end.
        let length =
            self.nearest(last, rest) + self.spanning_tree(rest, |_, _| {}) + self.nearest(0, rest);
        let potentials = 2 * each(rest).map(|city| self.potential[city]).sum::<i64>()
            + self.potential[last]
            + self.potential[0];
        path.cost + ceiling_of(length - potentials)
    }

    fn shifted(&self, a: usize, b: usize) -> i64 {
        self.shifted[a * self.distances.cities + b]
    }

    fn nearest(&self, from: usize, cities: Cities) -> i64 {
        each(cities)
            .map(|city| self.shifted(from, city))
            .min()
            .unwrap_or(0)
    }

    /// Length of the minimum spanning tree (Prim's algorithm); `edge` is told of every edge.
    fn spanning_tree(&self, cities: Cities, mut edge: impl FnMut(usize, usize)) -> i64 {
        let mut missing: [u8; CITIES_MAX] = [0; CITIES_MAX];
        let mut count = 0;
        for city in each(cities) {
            missing[count] = city as u8;
            count += 1;
        }
        let Some(mut left) = count.checked_sub(1) else {
            return 0;
        };
        let mut newest = usize::from(missing[left]);
        let mut near = [(i64::MAX, 0_u8); CITIES_MAX];
        let mut length = 0;
        while left > 0 {
            let row = &self.shifted[newest * self.distances.cities..][..self.distances.cities];
            let (mut best, mut best_distance) = (0, i64::MAX);
            for (i, (&city, near)) in missing[..left].iter().zip(&mut near).enumerate() {
                let distance = row[usize::from(city)];
                if distance < near.0 {
                    *near = (distance, newest as u8);
                }
                if near.0 < best_distance {
                    (best, best_distance) = (i, near.0);
                }
            }
            newest = usize::from(missing[best]);
            edge(newest, near[best].1.into());
            length += best_distance;
            left -= 1;
            missing.swap(best, left);
            near.swap(best, left);
        }
        length
    }

    fn shift(&mut self, potential: Vec<i64>) {
        let n = self.distances.cities;
        for a in 0..n {
            for b in 0..n {
                self.shifted[a * n + b] =
                    SCALE * i64::from(self.distances.between(a, b)) + potential[a] + potential[b];
            }
        }
        self.potential = potential;
    }

    /// Subgradient ascent: cities where the tree branches become dearer, cities where it ends cheaper, by smaller and
    /// smaller steps, and the potentials that gave the highest bound are kept.
    fn raise_bound(&mut self) {
        const ROUNDS: u32 = 2000;
        let n = self.distances.cities;
        let rest = self.all() & !1;
        let mut highest = i64::MIN;
        let mut best = self.potential.clone();
        let mut step = SCALE as f64 * f64::from(self.ceiling) / (10 * n) as f64;
        for _ in 0..ROUNDS {
            let mut degree = vec![0_i64; n];
            let mut length = self.spanning_tree(rest, |a, b| {
                degree[a] += 1;
                degree[b] += 1;
            });
            let mut by_distance: Vec<usize> = each(rest).collect();
            by_distance.sort_by_key(|&city| self.shifted(0, city));
            for &city in &by_distance[..2] {
                degree[0] += 1;
                degree[city] += 1;
                length += self.shifted(0, city);
            }
            let bound = length - 2 * self.potential.iter().sum::<i64>();
            if bound > highest {
                highest = bound;
                best.clone_from(&self.potential);
            }
            let raised = self
                .potential
                .iter()
                .zip(&degree)
                .map(|(p, d)| p + ((d - 2) as f64 * step).round() as i64)
                .collect();
            self.shift(raised);
            step *= 0.996;
        }
        self.shift(best);
    }
}

/// The least whole cost that is not below this one, which is in units of 1 / [`SCALE`].
fn ceiling_of(scaled: i64) -> u32 {
    u32::try_from((scaled + SCALE - 1).div_euclid(SCALE)).unwrap_or(0)
}

/// A symmetric matrix.
#[derive(Serialize, Deserialize)]
struct Distances {
    cities: usize,
    rows: Vec<u32>,
}

impl Distances {
    fn from_metric(points: &[Point], metric: fn(Point, Point) -> u32) -> Self {
        let rows = points.iter().flat_map(|&a| {
            points
                .iter()
                .map(move |&b| if a == b { 0 } else { metric(a, b) })
        });
        Self {
            cities: points.len(),
            rows: rows.collect(),
        }
    }

    /// Cities in a square of side 1000, distances as the crow flies.
    fn random(cities: u8, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut coordinate = || random.below(1000) as f64;
        let points: Vec<Point> = (0..cities).map(|_| (coordinate(), coordinate())).collect();
        Self::from_metric(&points, euclidean)
    }

    fn between(&self, a: usize, b: usize) -> u32 {
        self.rows[a * self.cities + b]
    }

    fn cost(&self, tour: &[u8]) -> u32 {
        tour.iter()
            .zip(tour.iter().cycle().skip(1))
            .map(|(&a, &b)| self.between(a.into(), b.into()))
            .sum()
    }

    /// Iterated local search: from city 0 always to the nearest city next, then reversals of a stretch as long as that helps
    /// (2-opt), then again and again two neighbouring stretches changed over at random and the damage repaired; the
    /// cheapest tour of all, turned to end (reversed: begin) at city 0.
    ///
    /// The nearer this is to the optimum, the less it matters in which order the workers come by the subtrees.
    fn heuristic_tour(&self) -> Tour {
        let rounds = 30 * self.cities;
        let mut random = Random::new(0);
        let mut best = self.nearest_neighbours();
        while self.improve(&mut best) {}
        for _ in 0..rounds {
            let mut cuts = [0; 3].map(|_| random.below(self.cities + 1));
            cuts.sort_unstable();
            let [from, middle, to] = cuts;
            let mut tour = best.clone();
            tour[from..to].rotate_left(middle - from);
            while self.improve(&mut tour) {}
            if self.cost(&tour) <= self.cost(&best) {
                best = tour;
            }
        }
        let start = best.iter().position(|&city| city == 0);
        best.rotate_left(start.map_or(0, |at| at + 1));
        Tour {
            cost: self.cost(&best),
            reversed: best,
        }
    }

    fn tour_in_order(&self) -> Tour {
        let reversed: Vec<u8> = (0..self.cities as u8).rev().collect();
        Tour {
            cost: self.cost(&reversed),
            reversed,
        }
    }

    fn nearest_neighbours(&self) -> Vec<u8> {
        let mut tour = vec![0];
        let mut unvisited: Vec<usize> = (1..self.cities).collect();
        let mut last = 0;
        while let Some(at) =
            (0..unvisited.len()).min_by_key(|&at| self.between(last, unvisited[at]))
        {
            last = unvisited.swap_remove(at);
            tour.push(last as u8);
        }
        tour
    }

    /// Reverses the first stretch that is worth it. False if there is none.
    fn improve(&self, tour: &mut [u8]) -> bool {
        let n = tour.len();
        let city = |tour: &[u8], at: usize| usize::from(tour[at % n]);
        for from in 1..n {
            for to in from + 1..n {
                let (before, first) = (city(tour, from - 1), city(tour, from));
                let (last, after) = (city(tour, to), city(tour, to + 1));
                if self.between(before, last) + self.between(first, after)
                    < self.between(before, first) + self.between(last, after)
                {
                    tour[from..=to].reverse();
                    return true;
                }
            }
        }
        false
    }

    /// # Errors
    /// If this is no tour, does not cost what it says or what the bound says, or is not as cheap as the known one.
    fn check(&self, found: &Found, known: Option<u32>) -> anyhow::Result<()> {
        let Found { tour, bound } = found;
        let mut cities = tour.reversed.clone();
        cities.sort_unstable();
        ensure!(
            cities
                .iter()
                .map(|&city| usize::from(city))
                .eq(0..self.cities),
            "wrong answer: {tour} does not visit every city once"
        );
        let cost = self.cost(&tour.reversed);
        ensure!(
            cost == tour.cost,
            "wrong answer: the tour costs {cost}, not {}",
            tour.cost
        );
        ensure!(
            cost == *bound,
            "wrong answer: the tour costs {cost}, and the bound says {bound}"
        );
        if let Some(known) = known {
            ensure!(
                cost == known,
                "wrong answer: the tour costs {cost}, but the optimum is {known}"
            );
        }
        Ok(())
    }
}

/// Coordinates; of geographical instances, latitude and longitude as degrees.minutes.
type Point = (f64, f64);

/// The distance functions are those of Reinelt, "TSPLIB 95".
fn euclidean((xa, ya): Point, (xb, yb): Point) -> u32 {
    (xa - xb).hypot(ya - yb).round() as u32
}

fn euclidean_rounded_up((xa, ya): Point, (xb, yb): Point) -> u32 {
    (xa - xb).hypot(ya - yb).ceil() as u32
}

fn pseudo_euclidean((xa, ya): Point, (xb, yb): Point) -> u32 {
    (((xa - xb).powi(2) + (ya - yb).powi(2)) / 10.0)
        .sqrt()
        .ceil() as u32
}

fn geographical(a: Point, b: Point) -> u32 {
    // TSPLIB's optima were computed with just these digits.
    #[expect(clippy::approx_constant, reason = "TSPLIB prescribes it")]
    const PI: f64 = 3.141592;
    const EARTH_RADIUS_KM: f64 = 6378.388;
    let radians = |degrees: f64| PI * (degrees.trunc() + 5.0 * degrees.fract() / 3.0) / 180.0;
    let (lat_a, lon_a, lat_b, lon_b) = (radians(a.0), radians(a.1), radians(b.0), radians(b.1));
    let q1 = (lon_a - lon_b).cos();
    let q2 = (lat_a - lat_b).cos();
    let q3 = (lat_a + lat_b).cos();
    (EARTH_RADIUS_KM * (0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)).acos() + 1.0) as u32
}

/// Reads an instance in TSPLIB's format.
fn parse(text: &str) -> anyhow::Result<Distances> {
    let mut header = Header::default();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        match key.trim() {
            "DIMENSION" => {
                let cities = value
                    .parse()
                    .ok()
                    .filter(|cities| (3..=CITIES_MAX).contains(cities));
                header.cities = Some(cities.with_context(|| {
                    format!("line {number}: expected a DIMENSION of 3 to {CITIES_MAX} cities, found `{value}`")
                })?);
            }
            "TYPE" => ensure!(
                value == "TSP",
                "line {number}: expected TYPE TSP, found `{value}`"
            ),
            "EDGE_WEIGHT_TYPE" => header.weights = value,
            "EDGE_WEIGHT_FORMAT" => header.format = value,
            "EDGE_WEIGHT_SECTION" => return header.matrix(Words::numbered(lines)),
            "NODE_COORD_SECTION" => return header.coordinates(Words::numbered(lines)),
            "NAME" | "COMMENT" | "DISPLAY_DATA_TYPE" | "NODE_COORD_TYPE" | "" => {}
            other => bail!("line {number}: expected a keyword of TSPLIB, found `{other}`"),
        }
    }
    bail!("the file ends where EDGE_WEIGHT_SECTION or NODE_COORD_SECTION was expected")
}

#[derive(Default)]
struct Header<'a> {
    cities: Option<usize>,
    weights: &'a str,
    format: &'a str,
}

impl Header<'_> {
    fn cities(&self) -> anyhow::Result<usize> {
        self.cities.context("the DIMENSION is missing")
    }

    fn matrix(&self, mut words: Words<'_>) -> anyhow::Result<Distances> {
        let cities = self.cities()?;
        // Columns of one triangle are rows of the other.
        let columns: fn(usize, usize) -> std::ops::Range<usize> = match self.format {
            "FULL_MATRIX" => |_, n| 0..n,
            "UPPER_ROW" | "LOWER_COL" => |row, n| row + 1..n,
            "LOWER_ROW" | "UPPER_COL" => |row, _| 0..row,
            "UPPER_DIAG_ROW" | "LOWER_DIAG_COL" => |row, n| row..n,
            "LOWER_DIAG_ROW" | "UPPER_DIAG_COL" => |row, _| 0..row + 1,
            "" => bail!("the EDGE_WEIGHT_FORMAT is missing"),
            other => bail!("EDGE_WEIGHT_FORMAT `{other}` is not known"),
        };
        let expected = format!("a distance of at most {DISTANCE_MAX}");
        let mut rows = vec![0; cities * cities];
        for row in 0..cities {
            for column in columns(row, cities) {
                let distance: u32 =
                    words.expect_valid(&expected, |&distance| distance <= DISTANCE_MAX)?;
                let mirrored = column * cities + row;
                ensure!(
                    self.format != "FULL_MATRIX" || row <= column || rows[mirrored] == distance,
                    "the matrix is not symmetric in row {}, column {}",
                    row + 1,
                    column + 1
                );
                rows[row * cities + column] = distance;
                rows[mirrored] = distance;
            }
        }
        Ok(Distances { cities, rows })
    }

    fn coordinates(&self, mut words: Words<'_>) -> anyhow::Result<Distances> {
        let cities = self.cities()?;
        let metric = match self.weights {
            "GEO" => geographical,
            "EUC_2D" => euclidean,
            "CEIL_2D" => euclidean_rounded_up,
            "ATT" => pseudo_euclidean,
            "" => bail!("the EDGE_WEIGHT_TYPE is missing"),
            other => bail!("EDGE_WEIGHT_TYPE `{other}` is not known"),
        };
        let mut points = Vec::new();
        for number in 1..=cities {
            words.expect_valid(
                &format!("coordinates of city {number}"),
                |&found: &usize| found == number,
            )?;
            points.push((words.expect("a coordinate")?, words.expect("a coordinate")?));
        }
        let distances = Distances::from_metric(&points, metric);
        ensure!(
            distances.rows.iter().all(|&d| d <= DISTANCE_MAX),
            "the cities are too far apart"
        );
        Ok(distances)
    }
}

/// Keeps the cost of every tour within 32 bits.
const DISTANCE_MAX: u32 = 10_000_000;

/// Cities in Burma (Zaw Win), latitude and longitude.
const BURMA14: [Point; 14] = [
    (16.47, 96.10),
    (16.47, 94.44),
    (20.09, 92.54),
    (22.39, 93.37),
    (25.23, 97.24),
    (22.00, 96.05),
    (20.47, 97.02),
    (17.20, 96.29),
    (16.30, 97.38),
    (14.05, 98.12),
    (16.53, 97.38),
    (21.52, 95.59),
    (19.41, 97.13),
    (20.09, 94.55),
];
