#[satin::main]
fn other(args: Vec<String>) {}

fn main() {}
