//! Values of a program, nested as deep as the bytes say: read within the stack, or refused; written again they are the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::job::codec::{Effort, read, write};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug)]
enum Tree {
    Leaf(i64, String),
    Pair(Box<Tree>, Box<Tree>),
    Many(Vec<Tree>),
    Perhaps(Option<Box<Tree>>),
    Numbers(Vec<u32>),
    Bytes(Vec<u8>),
}

fuzz_target!(|data: &[u8]| {
    let Ok(tree) = read::<Tree>("reading a tree", data) else {
        return;
    };
    let bytes = write("writing a tree", &tree, Effort::ANY).expect("what was read can be written");
    assert_eq!(read::<Tree>("reading a tree", &bytes), Ok(tree));
    assert!(write("writing a tree", &bytes[..], Effort::up_to(bytes.len() / 2)).is_err() || bytes.len() < 2);
});
