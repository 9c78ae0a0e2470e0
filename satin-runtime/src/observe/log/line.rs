//! The forms of a line: for people, and as JSON for programs that collect logs.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use serde_json::Value;
use strum::{EnumString, VariantNames};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::{SPAN_TARGET, counted, node_here};

/// The form of each line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum LogForm {
    /// Time, level, `NODE@SITE` in a pool, target, message and fields.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Writes lines of that form. Warnings of this crate that repeat themselves get none, and are counted.
pub(super) struct LineFormat(pub(super) LogForm);

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !counted::is_told(event) {
            return Ok(());
        }
        match self.0 {
            LogForm::Text => write_text(context, to, event),
            LogForm::Json => write_json(context, to, event),
        }
    }
}

fn write_text<S, N>(
    context: &FmtContext<'_, S, N>,
    mut to: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let colours = Colours(to.has_ansi_escapes());
    write!(to, "{}", colours.begin(DIM))?;
    SystemTime.format_time(&mut to)?;
    let level = event.metadata().level();
    write!(to, "{} ", colours.end())?;
    write!(
        to,
        "{}{level:>5}{} ",
        colours.begin(colour(*level)),
        colours.end()
    )?;
    if let Some(node) = node_here().filter(|node| node.has_network) {
        write!(to, "{}@{} ", node.name, node.site)?;
    }
    write!(to, "{}", colours.begin(DIM))?;
    for (name, fields) in spans_of_program(context) {
        let fields = match fields.is_empty() {
            true => fields,
            false => format!("{{{fields}}}"),
        };
        write!(to, "{name}{fields}: ")?;
    }
    write!(to, "{}:{} ", event.metadata().target(), colours.end())?;
    context.field_format().format_fields(to.by_ref(), event)?;
    writeln!(to)
}

/// What a line is as JSON. Names are those that collectors of logs look for.
#[derive(Serialize)]
struct JsonLine<'t> {
    /// Coordinated universal time, RFC 3339.
    time: String,
    level: &'static str,
    /// The node's name, and its site; nothing before it has one.
    node: Option<&'t str>,
    site: Option<&'t str>,
    /// The module that the line is from.
    target: &'t str,
    message: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<&'static str, Value>,
    /// Spans of the program around it, the outermost first: name and fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spans: Vec<(&'static str, String)>,
}

fn write_json<S, N>(
    context: &FmtContext<'_, S, N>,
    mut to: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut fields = Fields::default();
    event.record(&mut fields);
    let node = node_here();
    let line = JsonLine {
        time,
        level: event.metadata().level().as_str(),
        node: node.as_ref().map(|node| &*node.name),
        site: node.as_ref().map(|node| &*node.site),
        target: event.metadata().target(),
        message: fields.message,
        fields: fields.others,
        spans: spans_of_program(context),
    };
    let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
    writeln!(to, "{line}")
}

/// The names and fields of the spans around an event, without our own.
fn spans_of_program<S, N>(context: &FmtContext<'_, S, N>) -> Vec<(&'static str, String)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let is_ours = |of: &Metadata<'_>| of.target() == SPAN_TARGET && of.name() == "node";
    let around = context.event_scope().into_iter();
    let around = around.flat_map(|scope| scope.from_root());
    around
        .filter(|span| !is_ours(span.metadata()))
        .map(|span| {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.map_or_else(String::new, |fields| fields.fields.clone());
            (span.name(), fields)
        })
        .collect()
}

/// The message of an event, and its other fields by name.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) others: BTreeMap<&'static str, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.others.insert(name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    /// JSON has no infinities: those are null.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

const DIM: &str = "2";

/// The colours that people know from other logs of `tracing`.
fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        Level::INFO => "32",
        Level::DEBUG => "34",
        Level::TRACE => "35",
    }
}

/// Escape sequences, where a terminal reads them.
struct Colours(bool);

impl Colours {
    fn begin(&self, code: &str) -> String {
        match self.0 {
            true => format!("\x1b[{code}m"),
            false => String::new(),
        }
    }

    fn end(&self) -> String {
        self.begin("0")
    }
}
