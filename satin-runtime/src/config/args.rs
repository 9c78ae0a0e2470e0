//! Flags for the command line: of programs that parse their own, and of `satin node`.

use std::{path::PathBuf, time::Duration};

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
                value_parser = <$form as Form>::parser($expected),
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

super::settings!(args);

/// The line of `--help`. The table is written for the book, in Markdown.
fn help(help: &str, variable: &str, default: &str) -> String {
    format!("{help} [default: {variable}, else {default}]").replace('`', "")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{SETTINGS, flags};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        satin: Args,
    }

    #[test]
    fn every_setting_has_a_flag() {
        for (row, (flag, takes_value)) in SETTINGS.iter().zip(flags()) {
            let words = ["program", &flag, "1"];
            let words = &words[..if takes_value { 3 } else { 2 }];
            let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{flag}: {error}"));
            let config = Config::from(cli.satin);
            assert_eq!(config.variables(), [(row.variable, "1".into())]);
        }
    }

    #[test]
    fn wrong_values_of_flags_are_refused() {
        for words in [
            ["--threads", "many"],
            ["--grace", "-1"],
            ["--credential", ""],
            ["--events", ""],
        ] {
            let parsed = Cli::try_parse_from(["program"].into_iter().chain(words));
            assert!(parsed.is_err(), "{words:?}");
        }
    }
}
