use satin::spawnable;

struct Plain;
struct Generic<T>(T);

#[spawnable]
impl Plain {
    fn nothing_to_spawn(&self) {}
}

#[spawnable]
impl<T> Generic<T> {
    #[spawn]
    fn job(&self) {}
}

#[spawnable]
impl Clone for Plain {
    #[spawn]
    fn clone(&self) -> Plain {
        Plain
    }
}

#[spawnable(name = "plain")]
impl Plain {
    #[spawn]
    fn job(n: u64) -> u64 {
        n
    }
}

#[spawnable]
impl Plain {
    #[spawn(nmae = "x")]
    fn other(n: u64) -> u64 {
        n
    }
}

#[spawnable]
impl Plain {
    #[spawn]
    fn boxed(self: Box<Self>) -> u64 {
        0
    }
}

fn main() {}
