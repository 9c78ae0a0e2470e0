//! What is done with the blocks of a plate: sweeps of relaxation, on one core. Knows nothing of tasks.
//!
//! A block is square, row by row. Each point becomes the mean of its four neighbours; the sum is always made in the order above, below,
//! right, left, so that bits do not depend on how the plate is divided.
#![allow(dead_code, reason = "every program uses its own kernels")]

/// The mean of the four neighbours. The left one comes last: a sweep in place waits for it.
fn mean(above: f64, below: f64, right: f64, left: f64) -> f64 {
    0.25 * (((above + below) + right) + left)
}

/// A sweep in place, row by row: the neighbours above and on the left are those of this sweep (Gauss and Seidel). The row above the
/// block, the row below and so on lie at the facing edges of the neighbouring blocks. Returns the largest change.
pub fn relax_in_place(
    block: &mut [f64],
    above: &[f64],
    below: &[f64],
    left: &[f64],
    right: &[f64],
) -> f64 {
    let n = block.len().isqrt();
    let mut most: f64 = 0.0;
    for y in 0..n {
        let (done, rest) = block.split_at_mut(y * n);
        let (row, rest) = rest.split_at_mut(n);
        let above = match y {
            0 => &above[n * (n - 1)..],
            _ => &done[(y - 1) * n..],
        };
        let below = if y + 1 < n { &rest[..n] } else { &below[..n] };
        let at_right = right[y * n];
        let mut at_left = left[y * n + n - 1];
        for x in 0..n {
            let next = if x + 1 < n { row[x + 1] } else { at_right };
            let heat = mean(above[x], below[x], next, at_left);
            most = most.max((heat - row[x]).abs());
            row[x] = heat;
            at_left = heat;
        }
    }
    most
}

/// A sweep in which all neighbours are those of the sweep before (Jacobi). The four are the rows and columns beside the block. Returns
/// the largest change.
pub fn relax_from_old(
    block: &mut [f64],
    above: &[f64],
    below: &[f64],
    left: &[f64],
    right: &[f64],
) -> f64 {
    let n = block.len().isqrt();
    let mut most: f64 = 0.0;
    // The rows as they were, as those of the block change.
    let (mut old_above, mut old) = (above.to_vec(), vec![0.0; n]);
    for y in 0..n {
        let (row, rest) = block[y * n..].split_at_mut(n);
        let below = if y + 1 < n { &rest[..n] } else { below };
        old.copy_from_slice(row);
        let ends = (left[y], right[y]);
        let new = |x: usize, right: f64, left: f64| mean(old_above[x], below[x], right, left);
        for x in 1..n.saturating_sub(1) {
            row[x] = new(x, old[x + 1], old[x - 1]);
        }
        let last = n - 1;
        row[0] = new(0, if last > 0 { old[1] } else { ends.1 }, ends.0);
        if last > 0 {
            row[last] = new(last, ends.1, old[last - 1]);
        }
        for (new, old) in row.iter().zip(&old) {
            most = most.max((new - old).abs());
        }
        std::mem::swap(&mut old_above, &mut old);
    }
    most
}

/// The edges of a block: its first row, its last, its first column, its last.
pub fn edges(block: &[f64]) -> [Vec<f64>; 4] {
    let n = block.len().isqrt();
    let column = |x: usize| block.iter().skip(x).step_by(n).copied().collect();
    [
        block[..n].to_vec(),
        block[n * (n - 1)..].to_vec(),
        column(0),
        column(n - 1),
    ]
}
