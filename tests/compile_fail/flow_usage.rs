use satin::{flow, r, spawnable, task};

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Board(u64);

#[spawnable]
impl Board {
    #[spawn]
    fn solve(&self) -> u64 {
        self.0
    }
}

fn main() {
    flow!();
    flow!(7);
    flow!(|g| 7, 8);
    flow!(|g| {
        let board = g.data(Board(1));
        task!(g, board.solve());
        task!(g, r(board).solve());
        task!(g, Board::solve(r(board)));
        task!();
        task!(g);
        task!(Board::solve(r(board)));
        task!(g, 7);
        task!(g, Board::solve(r(board)), 7);
    });
}
