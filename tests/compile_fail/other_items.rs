use satin::spawnable;

#[spawnable]
struct NoFunction;

fn main() {}
