use satin::spawnable;

struct Point {
    x: u64,
}

struct Answer(u64);

/// In a container.
#[spawnable]
fn sum(points: Vec<Point>) -> u64 {
    if points.len() < 2 {
        return points.iter().map(|point| point.x).sum();
    }
    let a = sum(Vec::new());
    let b = sum(Vec::new());
    a + b
}

/// Borrowed, lent, and as a result.
#[spawnable]
fn nearest(from: &Point, to: &[Answer], seen: &mut Point) -> Option<Answer> {
    if seen.x == 0 {
        return None;
    }
    let answer = nearest(from, to, seen)?;
    Some(answer)
}

#[spawnable]
impl Point {
    #[spawn]
    fn walk(&self, steps: u64) -> u64 {
        if steps == 0 {
            return self.x;
        }
        self.walk(steps - 1) + self.walk(steps - 1)
    }
}

fn main() {
    let _ = (sum(Vec::new()), Point { x: 1 }.walk(3));
    let _ = nearest(&Point { x: 1 }, &[], &mut Point { x: 1 });
}
