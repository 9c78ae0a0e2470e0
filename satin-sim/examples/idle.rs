use satin_runtime::node::{Config, cluster::*};
use std::time::Duration;
fn main() {
    let mut c = Cluster::new(1);
    let ms = Duration::from_millis(1);
    c.wire.far = Path::new(100 * ms);
    let config = Config {
        fixed_members: true,
        ..Config::default()
    };
    let names: Vec<String> = (0..100).map(|s| format!("s{s}")).collect();
    let sites: Vec<(&str, u32)> = names.iter().map(|n| (&**n, 10)).collect();
    c.form(&config, &sites, 1);
    let mut p = Program::new(
        Shape::Knary {
            width: 4,
            height: 10,
            serial: 0,
        },
        10 * ms,
    );
    p.inner = Duration::ZERO;
    let p = c.program(p);
    c.run_for(1000 * ms);
    c.start_root(0, p);
    let mut last = Duration::ZERO;
    while !c.is_done(0) {
        c.run_for(100 * ms);
        let b: Duration = (0..1000).map(|n| c.effort(n).busy).sum();
        println!(
            "{:6} {:.3}",
            (c.now() - 1000 * ms).as_millis(),
            (b - last).as_secs_f64() / 100.0
        );
        last = b;
    }
}
