use satin::{acc, flow, spawnable, task};

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Text(String);

#[spawnable]
fn append(text: &mut Text, more: String) {
    text.0 += &more;
}

fn main() {
    flow!(|g| {
        let text = g.data(Text(String::new()));
        task!(g, append(acc(text), "a".into()));
    });
}
