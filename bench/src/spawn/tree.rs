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

// The tree is complete: a node has two children or none. All four rely on it. Which child is visited first differs
// (rayon's worker goes left, chili's and satin's right): that belongs to the library, and memory feels it.

fn sum_seq(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    tree.value + sum_seq(left) + sum_seq(right)
}

#[satin::spawnable]
fn sum_satin(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    tree.value + sum_satin(left) + sum_satin(right)
}

fn sum_rayon(tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    let (left, right) = rayon::join(|| sum_rayon(left), || sum_rayon(right));
    tree.value + left + right
}

fn sum_chili(scope: &mut chili::Scope<'_>, tree: &Tree) -> u64 {
    let (Some(left), Some(right)) = (tree.left.as_deref(), tree.right.as_deref()) else {
        return tree.value;
    };
    let (left, right) = scope.join(|s| sum_chili(s, left), |s| sum_chili(s, right));
    tree.value + left + right
}
