//! The sum of a complete binary tree of boxes, a spawn per node: jobs that wait for memory.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use super::Case;

#[derive(Serialize, Deserialize)]
struct Tree {
    value: u64,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

impl Tree {
    /// A complete tree of `layers` layers; its values are `*next`, `*next + 1`, .. in preorder, which is also the
    /// order in which its boxes are allocated.
    fn complete(layers: u32, next: &mut u64) -> Self {
        let value = *next;
        *next += 1;
        let mut child = || (layers > 1).then(|| Box::new(Self::complete(layers - 1, next)));
        Self {
            value,
            left: child(),
            right: child(),
        }
    }
}

pub struct TreeSum {
    layers: u32,
    nodes: u64,
    tree: Tree,
}

impl TreeSum {
    pub fn new(layers: u32) -> Self {
        let mut nodes = 0;
        let tree = Tree::complete(layers, &mut nodes);
        Self {
            layers,
            nodes,
            tree,
        }
    }
}

impl Case for TreeSum {
    fn title(&self) -> String {
        format!("tree sum, {} layers", self.layers)
    }

    fn calls(&self) -> u64 {
        self.nodes
    }

    fn seq(&mut self) -> u64 {
        sum_seq(black_box(&self.tree))
    }

    fn satin(&mut self) -> u64 {
        sum_satin(black_box(&self.tree))
    }

    fn rayon(&mut self) -> u64 {
        sum_rayon(black_box(&self.tree))
    }

    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64 {
        sum_chili(scope, black_box(&self.tree))
    }

    fn check(&self, answer: u64) -> bool {
        answer == self.nodes * (self.nodes - 1) / 2
    }
}

// The tree is complete: a node has two children or none. All four rely on it. All four visit the right child first: memory feels the
// difference (on an AMD EPYC the other order takes three times as long, with or without a library), and chili's `join` has no other.

fn sum_seq(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    tree.value + sum_seq(right) + sum_seq(left)
}

#[satin::spawnable]
fn sum_satin(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    tree.value + sum_satin(right) + sum_satin(left)
}

fn sum_rayon(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    let (right, left) = rayon::join(|| sum_rayon(right), || sum_rayon(left));
    tree.value + left + right
}

fn sum_chili(scope: &mut chili::Scope<'_>, tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    // The second of the two is run at once.
    let (left, right) = scope.join(|s| sum_chili(s, left), |s| sum_chili(s, right));
    tree.value + left + right
}
