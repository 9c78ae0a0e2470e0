use satin_runtime::node::{Config, cluster::*};
use std::time::Duration;
fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut c = Cluster::new(seed);
    let ms = Duration::from_millis(1);
    c.wire.far = Path::new(100 * ms);
    let config = Config {
        fixed_members: true,
        ..Config::default()
    };
    c.form(&config, &[("s0", 4), ("s1", 4), ("s2", 4), ("s3", 4)], 1);
    let mut p = Program::new(
        Shape::Knary {
            width: 4,
            height: 7,
            serial: 0,
        },
        10 * ms,
    )
    .seeded(seed);
    p.inner = Duration::ZERO;
    let p = c.program(p);
    c.run_for(1000 * ms);
    c.start_root(0, p);
    let mut last = vec![Duration::ZERO; 16];
    while !c.is_done(0) {
        c.run_for(100 * ms);
        let f: Vec<String> = (0..16)
            .map(|n| {
                let b = c.effort(n).busy;
                let d = b - last[n as usize];
                last[n as usize] = b;
                format!("{:3}", d.as_millis())
            })
            .collect();
        if f.iter().any(|x| x.trim().parse::<u32>().unwrap() < 100) {
            println!("{:6} {}", (c.now() - 1000 * ms).as_millis(), f.join(" "));
        }
    }
}
