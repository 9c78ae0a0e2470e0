//! In how many ways can N queens stand on an N x N board with no two of them in one row, column or diagonal?
//!
//! Shows spawns in a loop: one for each square of the row that is not attacked, their results added up as they come. The
//! sets of attacked columns and diagonals are bit masks (Martin Richards, "Backtracking algorithms in MCPL using bit
//! patterns and recursion", 1997), so a job's arguments are sixteen bytes.

mod common;

use anyhow::ensure;
use clap::Parser;
use common::Mode;

/// The numbers of solutions for boards of size 1, 2, .. (OEIS A000170).
const KNOWN: [u64; 18] = [
    1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14200, 73712, 365596, 2279184, 14772512, 95815104,
    666090624,
];

/// Counts the ways to place N queens so that none attacks another
#[derive(Parser)]
#[command(after_help = "Examples:\n  nqueens\n  nqueens 13 --compare\n  nqueens 16 --threads 4")]
struct Cli {
    /// Queens, and rows and columns of the board
    #[arg(default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=30))]
    n: u32,
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
    let n = cli.n;
    let known = KNOWN.get(n as usize - 1);
    let run = cli.mode.measure(
        || (1 << n) - 1,
        |board| queens(board, 0, 0, 0),
        |board| satin::seq!(queens(board, 0, 0, 0)),
        |answer| {
            ensure!(
                known.is_none_or(|known| known == answer),
                "wrong answer: {answer} ways to place {n} queens, but there are {}",
                KNOWN[n as usize - 1]
            );
            Ok(())
        },
    )?;
    let verdict = if known.is_some() {
        "ok"
    } else {
        "not checked: no known answer"
    };
    println!("nqueens({n}) = {} ({verdict})", run.answer);
    run.report();
    Ok(())
}

/// Solutions below a board whose upper rows are filled: `board` has a bit for every column, the other masks a bit for every
/// square of this row that is attacked along a column, or along a diagonal that goes down to the left or to the right.
#[satin::spawnable]
fn queens(board: u32, columns: u32, left: u32, right: u32) -> u64 {
    if columns == board {
        return 1;
    }
    let mut count = 0;
    let mut free = board & !(columns | left | right);
    while free != 0 {
        let square = free & free.wrapping_neg();
        free ^= square;
        count += queens(
            board,
            columns | square,
            (left | square) << 1,
            (right | square) >> 1,
        );
    }
    count
}
