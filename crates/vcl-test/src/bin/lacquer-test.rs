//! `lacquer-test`: the program that runs `lacquer test`. It takes the words that `lacquer` has checked.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lacquer_inspect::page;
use lacquer_vcl_test::{Settings, check, report};

/// The exit code if the tests could not run.
const TROUBLE: u8 = 2;
/// Default of the option `--timeout`, in seconds.
const LIMIT: f64 = 10.0;
const USAGE: &str = "usage: lacquer test FILE.vcl [TESTS...] [--filter TEXT] [--json] [--verbose] [--timeout SECONDS] [-p NAME=VALUE]";

/// The command line.
struct Words {
    files: Vec<String>,
    settings: Settings,
    is_json: bool,
    lists_all: bool,
}

fn main() -> ExitCode {
    let results = words().and_then(|words| Ok((run(&words)?, words)));
    let (results, words) = match results {
        Ok(done) => done,
        Err(why) => {
            eprint!("{}", page::fit(&format!("lacquer: {}", why.trim_end())));
            return ExitCode::from(TROUBLE);
        }
    };
    let has_colors =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let text = if words.is_json {
        report::json(&results)
    } else {
        report::text(&results, has_colors, words.lists_all)
    };
    // The reader may close it early.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let (all, failed) = results.counts();
    if all == 0 {
        eprintln!("lacquer: no test has run; is --filter right?");
    }
    let code = u8::from(failed > 0 || all == 0);
    if results.is_stuck {
        // The thread of the test goes on.
        std::process::exit(code.into());
    }
    ExitCode::from(code)
}

fn run(words: &Words) -> Result<lacquer_vcl_test::Results, String> {
    let (vcl, rest) = words.files.split_first().ok_or(USAGE)?;
    let mut names = rest.to_vec();
    if names.is_empty() {
        let beside = Path::new(vcl).with_extension("test").to_string_lossy().into_owned();
        if !Path::new(&beside).exists() {
            return Err(format!("{beside}: there is no such file; name the test files behind the VCL"));
        }
        names.push(beside);
    }
    let read = |name: String| match std::fs::read(&name) {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(format!("{name}: {error}")),
    };
    let files: Vec<(String, Vec<u8>)> = names.into_iter().map(read).collect::<Result<_, _>>()?;
    check(vcl, &files, &words.settings)
}

fn words() -> Result<Words, String> {
    let settings = Settings { filter: None, params: Vec::new(), limit: Duration::from_secs_f64(LIMIT) };
    let mut words = Words { files: Vec::new(), settings, is_json: false, lists_all: false };
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--json" => words.is_json = true,
            "--verbose" => words.lists_all = true,
            "--filter" => words.settings.filter = Some(value()?),
            "--timeout" => {
                let seconds = value()?.parse().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
                words.settings.limit =
                    Duration::from_secs_f64(seconds.ok_or("--timeout needs a number of seconds")?);
            }
            "-p" => match value()?.split_once('=') {
                Some((name, value)) => words.settings.params.push((name.to_owned(), value.to_owned())),
                None => return Err("-p needs NAME=VALUE".to_owned()),
            },
            word if word.starts_with('-') => return Err(format!("there is no option {word}\n{USAGE}")),
            _ => words.files.push(word),
        }
    }
    Ok(words)
}
