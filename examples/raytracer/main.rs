//! A raytracer: the picture is cut in two, and in two again, and Satin has the pieces computed wherever there is a
//! processor. What is about Satin is `satin::run` and `Shared` below, and a few lines of `render.rs`.
//!
//! `cargo run --release --example raytracer` makes `raytracer.png`; `--help` says what else it can do.

mod builtin;
mod bvh;
mod camera;
mod geometry;
mod maths;
mod mesh;
mod render;
mod report;
mod scene;
mod scene_file;
mod shade;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use satin::Shared;

use crate::builtin::Builtin;
use crate::render::{MAX_DETAIL, Pixel, Shot, on_all_cores, on_one_core};
use crate::report::{Cost, checksum};

#[derive(Clone, Parser)]
#[command(about = "Renders a picture on every core there is", after_help = EXAMPLES)]
struct Cli {
    /// A scene without a file
    #[arg(long, value_enum, default_value = "flake")]
    builtin: Builtin,

    /// A scene from a TOML file; examples/raytracer/scenes/spheres.toml explains what can stand in it
    #[arg(long, value_name = "FILE", conflicts_with = "builtin")]
    scene: Option<PathBuf>,

    /// Width of the picture in pixels
    #[arg(long, default_value_t = 1280, value_parser = clap::value_parser!(u32).range(1..=MAX_SIDE))]
    width: u32,

    /// Height of the picture in pixels
    #[arg(long, default_value_t = 720, value_parser = clap::value_parser!(u32).range(1..=MAX_SIDE))]
    height: u32,

    /// At most so many samples per pixel, where there is something to see: 1, 4, 16, 64 or 256
    /// (others count as the next lower one)
    #[arg(long, default_value_t = SAMPLES, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,

    /// Reflections of reflections
    #[arg(long, default_value_t = BOUNCES, value_parser = clap::value_parser!(u32).range(0..=100))]
    depth: u32,

    /// Where to write the picture
    #[arg(long, value_name = "FILE.png", default_value = "raytracer.png")]
    out: PathBuf,

    /// Run the plain recursive program on one core
    #[arg(long)]
    sequential: bool,

    /// Run the plain recursive program first, then Satin, and print how much faster that was
    #[arg(long, conflicts_with = "sequential")]
    compare: bool,

    #[command(flatten)]
    satin: satin::Args,
}

const SAMPLES: u32 = 16;
const BOUNCES: u32 = 4;
const MAX_SIDE: i64 = 16384;

const EXAMPLES: &str = "\
Examples:
  raytracer                       # the sphere flake, on all cores
  raytracer --compare             # how much faster is that than one core?
  raytracer --builtin mesh --width 1920 --height 1080 --out knot.png
  raytracer --scene examples/raytracer/scenes/chess.toml
  raytracer --width 160 --height 90  # its checksum is compared";

fn main() -> Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> Result<()> {
    let scene = Shared::new(match &cli.scene {
        Some(path) => scene_file::load(path)?,
        None => cli.builtin.scene(),
    });
    let shot = Shot {
        width: cli.width,
        height: cli.height,
        bounces: cli.depth,
        detail: (cli.samples.ilog2() / 2).min(MAX_DETAIL),
    };

    check_folder(&cli.out)?;

    let sequentially = || Cost::of(|| on_one_core(&scene, shot));
    let in_parallel = || Cost::of(|| on_all_cores(&scene, shot));

    let baseline = cli.compare.then(sequentially);
    let (picture, cost) = if cli.sequential {
        sequentially()
    } else {
        in_parallel()
    };
    if let Some((expected, _)) = &baseline {
        ensure!(
            picture == *expected,
            "Satin's picture is not that of the sequential program: this is a bug"
        );
    }
    save(&cli.out, shot, &picture)?;

    let checksum = checksum(&picture);
    let known = known_checksum(cli);
    let verdict = if known == Some(checksum) { " ok" } else { "" };
    let Cli {
        out, width, height, ..
    } = cli;
    println!(
        "{} {width}x{height}, checksum {checksum:08x}{verdict}",
        out.display()
    );
    let place = match (cli.sequential, satin::node()) {
        (false, node) if node.nodes > 1 => Place::Nodes(node.nodes),
        (false, node) => Place::Workers(node.threads),
        (true, _) => Place::Workers(1),
    };
    print_speed(shot, place, &cost, baseline.map(|(_, cost)| cost));
    if let Some(known) = known {
        ensure!(
            checksum == known,
            "the checksum of this picture should be {known:08x}: the picture is wrong, or this computer's floating \
             point is not IEEE 754; please report it"
        );
    }
    Ok(())
}

/// Complains now, not after an hour of work.
fn check_folder(out: &Path) -> Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    ensure!(
        folder.is_none_or(Path::is_dir),
        "there is no folder for {}: create it, or name another with --out",
        out.display()
    );
    Ok(())
}

/// Where the picture was rendered.
#[derive(Clone, Copy)]
enum Place {
    Workers(usize),
    Nodes(usize),
}

fn print_speed(shot: Shot, place: Place, cost: &Cost, baseline: Option<Cost>) {
    let seconds = cost.wall.as_secs_f64();
    let rate = shot.pixels() as f64 / seconds / 1e6;
    let place_text = match place {
        Place::Workers(1) => "1 worker".to_owned(),
        Place::Workers(workers) => format!("{workers} workers"),
        Place::Nodes(nodes) => format!("{nodes} nodes"),
    };
    println!("time {seconds:.3} s on {place_text}, {rate:.2} Mpixel/s");
    if let Some(baseline) = baseline {
        let speed_up = baseline.wall.as_secs_f64() / seconds;
        println!("speed-up {speed_up:.2} over one core (measured)");
    } else if let Place::Nodes(_) = place {
        // Of other nodes' processor time this one knows nothing.
    } else if let Some(cpu) = cost.cpu {
        let speed_up = cpu.as_secs_f64() / seconds;
        println!(
            "speed-up {speed_up:.2} over one core (estimated from processor time; --compare measures it)"
        );
    } else {
        println!("speed-up unknown (--compare measures it)");
    }
}

/// The checksum that every computer must get for a small picture of a built-in scene, since `maths` uses nothing on
/// which they may disagree.
fn known_checksum(cli: &Cli) -> Option<u32> {
    let standard = (cli.width, cli.height, cli.samples, cli.depth) == (160, 90, SAMPLES, BOUNCES);
    (standard && cli.scene.is_none()).then_some(match cli.builtin {
        Builtin::Flake => 0x4e10_3220,
        Builtin::Mesh => 0x627a_afd9,
    })
}

fn save(out: &Path, shot: Shot, picture: &[Pixel]) -> Result<()> {
    write_png(out, shot, picture).with_context(|| {
        format!(
            "cannot write {}: name another file with --out",
            out.display()
        )
    })
}

fn write_png(out: &Path, shot: Shot, picture: &[Pixel]) -> Result<()> {
    let file = BufWriter::new(File::create(out)?);
    let mut encoder = png::Encoder::new(file, shot.width, shot.height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(picture.as_flattened())?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::io::BufReader;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn small_pictures_have_the_known_checksums() {
        for builtin in ["flake", "mesh"] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let out = folder.path().join("small.png");
            let size = [
                "raytracer",
                "--width",
                "160",
                "--height",
                "90",
                "--builtin",
                builtin,
                "--compare",
                "--out",
            ];
            let cli = Cli::parse_from(size.iter().map(AsRef::as_ref).chain([out.as_os_str()]));
            assert!(known_checksum(&cli).is_some());
            run(&cli).expect("the known answer");
            let picture = png::Decoder::new(BufReader::new(File::open(out).expect("a file")));
            let picture = picture.read_info().expect("a picture");
            assert_eq!(picture.info().size(), (160, 90));
        }
    }
}
