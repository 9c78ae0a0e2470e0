//! What is done with the tiles of a matrix: the kernels of factorizations, on one core. Knows nothing of tasks.
//!
//! A tile is square, row by row. Kernels work by strips: what lies within a strip is a plain loop, and the rest a product of matrices by
//! `matrixmultiply`, in which the time goes. Its code is chosen by the processor, so bits may differ between processors of different kinds.
#![allow(dead_code, reason = "every program uses its own kernels")]

/// Rows or columns of a strip. Too small: products so thin that they are slow. Too large: plain loops do too much of the work.
const STRIP: usize = 32;

/// Factors a tile in place, A = L U: L below the diagonal, where it has ones, and U from the diagonal upwards. There is no pivoting.
pub fn lu(a: &mut [f64]) {
    let n = order(a);
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        for k in from..to {
            let (above, below) = a.split_at_mut((k + 1) * n);
            let pivots = &above[k * n..];
            let inverse = 1.0 / pivots[k];
            for row in below.chunks_exact_mut(n) {
                row[k] *= inverse;
                let factor = row[k];
                subtract(&mut row[k + 1..to], &pivots[k + 1..to], factor);
            }
        }
        if to == n {
            return;
        }
        for k in from..to {
            let (above, below) = a.split_at_mut((k + 1) * n);
            let pivots = &above[k * n..];
            for row in below.chunks_exact_mut(n).take(to - k - 1) {
                let factor = row[k];
                subtract(&mut row[to..], &pivots[to..], factor);
            }
        }
        let lower = columns(&a[to * n..], n, from, to);
        let (above, below) = a.split_at_mut(to * n);
        subtract_product(
            &mut below[to..],
            n,
            View::new(&lower, n - to, to - from, to - from),
            View::new(&above[from * n + to..], to - from, n - to, n),
        );
    }
}

/// A becomes L^-1 A, with the L of a tile that [`lu`] has factored.
pub fn solve_lower(a: &mut [f64], factored: &[f64]) {
    let n = order(a);
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        for k in from..to {
            let (above, below) = a.split_at_mut((k + 1) * n);
            for (row, i) in below.chunks_exact_mut(n).zip(k + 1..to) {
                subtract(row, &above[k * n..], factored[i * n + k]);
            }
        }
        if to < n {
            let (above, below) = a.split_at_mut(to * n);
            subtract_product(
                below,
                n,
                View::new(&factored[to * n + from..], n - to, to - from, n),
                View::new(&above[from * n..], to - from, n, n),
            );
        }
    }
}

/// A becomes A U^-1, with the U of a tile that [`lu`] has factored.
pub fn solve_upper(a: &mut [f64], factored: &[f64]) {
    solve_right(a, View::tile(factored));
}

/// C becomes C - A B.
pub fn subtract_times(c: &mut [f64], a: &[f64], b: &[f64]) {
    subtract_product(c, order(c), View::tile(a), View::tile(b));
}

/// Factors a symmetric tile in place, A = L L^T. Of A the lower half is read; above the diagonal there are zeros afterwards.
pub fn cholesky(a: &mut [f64]) {
    let n = order(a);
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        let width = to - from;
        let rows = &a[from * n..];
        let mut panel = columns(rows, n, from, to);
        subtract_product(
            &mut panel,
            width,
            View::new(rows, n - from, from, n),
            View::new(rows, width, from, n).transposed(),
        );
        let (corner, below) = panel.split_at_mut(width * width);
        cholesky_of_corner(corner, width);
        let upper = View::new(corner, width, width, width).transposed().copy();
        for row in below.chunks_exact_mut(width) {
            solve_row(row, &upper);
        }
        let rows = a[from * n..].chunks_exact_mut(n);
        for (row, solved) in rows.zip(panel.chunks_exact(width)) {
            row[from..to].copy_from_slice(solved);
        }
        for row in a[..from * n].chunks_exact_mut(n) {
            row[from..to].fill(0.0);
        }
    }
}

/// A becomes A L^-T, with the L of a tile that [`cholesky`] has factored.
pub fn solve_transposed(a: &mut [f64], factored: &[f64]) {
    solve_right(a, View::tile(factored).transposed());
}

/// C becomes C - A A^T, as far as the lower half of C depends on it.
pub fn subtract_square(c: &mut [f64], a: &[f64]) {
    let n = order(c);
    for from in (0..n).step_by(2 * STRIP) {
        let to = (from + 2 * STRIP).min(n);
        subtract_product(
            &mut c[from * n..],
            n,
            View::new(&a[from * n..], to - from, n, n),
            View::new(a, to, n, n).transposed(),
        );
    }
}

/// C becomes C - A B^T.
pub fn subtract_times_transposed(c: &mut [f64], a: &[f64], b: &[f64]) {
    subtract_product(c, order(c), View::tile(a), View::tile(b).transposed());
}

/// Rows and columns of a tile.
pub fn order(tile: &[f64]) -> usize {
    tile.len().isqrt()
}

/// A becomes A U^-1; what is below the diagonal of U is not looked at.
fn solve_right(a: &mut [f64], u: View<'_>) {
    let n = order(a);
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        let upper = u.part(from..to, from..to).copy();
        for row in a.chunks_exact_mut(n) {
            solve_row(&mut row[from..to], &upper);
        }
        if to < n {
            let solved = columns(a, n, from, to);
            subtract_product(
                &mut a[to..],
                n,
                View::new(&solved, n, to - from, to - from),
                u.part(from..to, to..n),
            );
        }
    }
}

/// The row r becomes r U^-1, for a U of its length.
fn solve_row(row: &mut [f64], upper: &[f64]) {
    let n = row.len();
    for (k, pivots) in upper.chunks_exact(n).enumerate() {
        row[k] /= pivots[k];
        let factor = row[k];
        subtract(&mut row[k + 1..], &pivots[k + 1..], factor);
    }
}

/// The factorization of a symmetric matrix of that order by plain loops, with zeros above the diagonal.
fn cholesky_of_corner(a: &mut [f64], n: usize) {
    for k in 0..n {
        let (above, below) = a.split_at_mut((k + 1) * n);
        let pivots = &mut above[k * n..];
        pivots[k] = pivots[k].sqrt();
        pivots[k + 1..].fill(0.0);
        let pivot = pivots[k];
        for row in below.chunks_exact_mut(n) {
            row[k] /= pivot;
        }
        // The column, once it is complete, is what the rows right of it lose.
        let column: Vec<f64> = below.chunks_exact(n).map(|row| row[k]).collect();
        for (row, i) in below.chunks_exact_mut(n).zip(1..) {
            let factor = row[k];
            subtract(&mut row[k + 1..k + 1 + i], &column[..i], factor);
        }
    }
}

/// The row loses a multiple of another.
fn subtract(row: &mut [f64], other: &[f64], factor: f64) {
    for (element, other) in row.iter_mut().zip(other) {
        *element -= factor * other;
    }
}

/// These columns of rows of length `n`, row by row.
fn columns(rows: &[f64], n: usize, from: usize, to: usize) -> Vec<f64> {
    let rows: Vec<&[f64]> = rows.chunks_exact(n).map(|row| &row[from..to]).collect();
    rows.concat()
}

/// A matrix that lies in a slice: its element (i, j) is at `i * down + j * right`.
#[derive(Clone, Copy)]
struct View<'a> {
    elements: &'a [f64],
    rows: usize,
    columns: usize,
    down: usize,
    right: usize,
}

impl<'a> View<'a> {
    /// So many rows and columns of rows of length `n`.
    fn new(elements: &'a [f64], rows: usize, columns: usize, n: usize) -> Self {
        View {
            elements,
            rows,
            columns,
            down: n,
            right: 1,
        }
    }

    fn tile(tile: &'a [f64]) -> Self {
        let n = order(tile);
        View::new(tile, n, n, n)
    }

    fn transposed(self) -> Self {
        View {
            rows: self.columns,
            columns: self.rows,
            down: self.right,
            right: self.down,
            ..self
        }
    }

    fn part(self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Self {
        View {
            elements: &self.elements[rows.start * self.down + columns.start * self.right..],
            rows: rows.len(),
            columns: columns.len(),
            ..self
        }
    }

    /// Row by row.
    fn copy(self) -> Vec<f64> {
        let row = |i| (0..self.columns).map(move |j| i * self.down + j * self.right);
        (0..self.rows)
            .flat_map(row)
            .map(|at| self.elements[at])
            .collect()
    }

    /// Does the slice hold all elements? There is one at least.
    fn is_whole(self) -> bool {
        (self.rows - 1) * self.down + (self.columns - 1) * self.right < self.elements.len()
    }
}

/// C becomes C - A B. The slice begins with the first element of C, whose rows have the length `n` in it.
///
/// # Panics
/// If a slice is too short for its matrix, or the matrices have no product.
fn subtract_product(c: &mut [f64], n: usize, a: View<'_>, b: View<'_>) {
    assert_eq!(a.columns, b.rows, "the matrices have a product");
    if a.rows == 0 || a.columns == 0 || b.columns == 0 {
        return;
    }
    let has_room = b.columns <= n && (a.rows - 1) * n + b.columns <= c.len();
    assert!(has_room && a.is_whole() && b.is_whole(), "slices hold all");
    // SAFETY: all elements are in their slices, as just seen, those of C at different places, and nobody else has the slice of C.
    unsafe {
        matrixmultiply::dgemm(
            a.rows,
            a.columns,
            b.columns,
            -1.0,
            a.elements.as_ptr(),
            a.down as isize,
            a.right as isize,
            b.elements.as_ptr(),
            b.down as isize,
            b.right as isize,
            1.0,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}
