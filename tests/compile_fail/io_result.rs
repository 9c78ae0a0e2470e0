use std::io;
use std::path::{Path, PathBuf};

use satin::spawnable;

#[spawnable]
fn bytes(path: &Path) -> io::Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    let children: Vec<PathBuf> = path
        .read_dir()?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    let mut sizes = Vec::new();
    for child in &children {
        sizes.push(bytes(child)?);
    }
    Ok(sizes.iter().sum())
}

fn main() {
    let _ = bytes(Path::new("."));
}
