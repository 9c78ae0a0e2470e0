use satin::spawnable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Tree {
    left: Option<Box<Tree>>,
}

#[spawnable]
impl Tree {
    #[spawn]
    fn sum(&self) -> u64 {
        match &self.left {
            Some(left) => 1 + left.sum(),
            None => 1,
        }
    }
}

fn main() {}
