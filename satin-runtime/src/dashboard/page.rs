//! The page: one file without external parts, put together from those in `page/`.

/// The parts of the script, in this order.
const SCRIPTS: [&str; 8] = [
    include_str!("page/tools.js"),
    include_str!("page/data.js"),
    include_str!("page/map.js"),
    include_str!("page/stream.js"),
    include_str!("page/curves.js"),
    include_str!("page/tables.js"),
    include_str!("page/steer.js"),
    include_str!("page/main.js"),
];

/// What browsers may load for the page, and where it may be shown: nothing from elsewhere, and nowhere else.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page that asks the node which served it.
pub(super) fn live() -> String {
    with_data("")
}

/// The page that shows this JSON, and asks nobody.
pub(super) fn frozen(json: &str) -> String {
    // Texts in JSON must not end the element that they stand in. `<` stands in strings alone, where it may be written so.
    with_data(&json.replace('<', "\\u003c"))
}

fn with_data(json: &str) -> String {
    let html = include_str!("page/page.html");
    html.replacen("/*STYLE*/", include_str!("page/style.css"), 1)
        .replacen("/*SCRIPT*/", &SCRIPTS.concat(), 1)
        .replacen("/*DATA*/", json, 1)
}
