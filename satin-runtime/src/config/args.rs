//! Flags for the command line: of programs that parse their own, and of `satin node`.

use std::{path::PathBuf, time::Duration};

use clap::builder::TypedValueParser;

use super::{Config, SettingSource, form::Form};

macro_rules! args {
    ($(
        $(#[$doc:meta])*
        $key:ident: $form:ident, $variable:literal, $value:literal, $help:literal, $default:literal, $expected:literal;
    )*) => {
        /// Settings of Satin, to be flattened into a program's own flags. They stand above environment and `satin.toml`.
        #[derive(clap::Args, Clone, Debug, Default)]
        #[command(next_help_heading = "Satin")]
        pub struct Args {$(
            #[doc = $help]
            #[arg(
                long,
                value_name = $value,
                help = help($help, $variable, $default),
                num_args = <$form as Form>::ARGUMENTS,
                default_missing_value = "true",
                value_parser = parser::<$form>($expected),
            )]
            pub $key: Option<$form>,
        )*}

        impl From<Args> for Config {
            fn from(args: Args) -> Config {
                let config = Config {
                    $($key: args.$key,)*
                    ..Config::default()
                };
                config.given_by(|_| SettingSource::Flag)
            }
        }
    };
}

crate::settings!(args);

/// The line of `--help`. The table is written for the README, in Markdown.
fn help(help: &str, variable: &str, default: &str) -> String {
    format!("{help} [default: {variable}, else {default}]").replace('`', "")
}

fn parser<F: Form>(expected: &'static str) -> impl TypedValueParser<Value = F> {
    move |text: &str| F::read(text).ok_or_else(|| format!("expected {expected}"))
}
