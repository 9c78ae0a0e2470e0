use std::time::Duration;
use satin_runtime::node::{Config, cluster::*};
fn main() {
    let mut c = Cluster::new(1);
    let ms = Duration::from_millis(1);
    let config = Config{fixed_members:true, ..Config::default()};
    c.form(&config, &[("s0",16)],1);
    let mut p = Program::new(Shape::Flat{jobs:16000}, 10*ms);
    p.inner = Duration::ZERO;
    let p = c.program(p);
    c.run_for(1000*ms);
    c.start_root(0,p);
    let mut last=vec![Duration::ZERO;16];
    for i in 0..40 {
        if i==20 {c.trace=true; c.run_for(15*ms); c.trace=false;}
        c.run_for(100*ms);
        let f: Vec<String> = (0..16).map(|n| { let b=c.effort(n).busy; let d=b-last[n as usize]; last[n as usize]=b; format!("{:3}",d.as_millis()) }).collect();
        println!("{:6} {}", (c.now()-1000*ms).as_millis(), f.join(" "));
    }
}
