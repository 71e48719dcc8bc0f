//! `lacquer stat`: prints counters.

use std::process::ExitCode;

use lacquer_inspect::counters::{self, Counter};
use lacquer_inspect::page::{WIDTH, first_chars, plain};
use lacquer_manager::show;
use serde_json::{Map, Value, json};

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let all = counters::read(&remote::directory(values)?).map_err(Failure::of)?;
    let shows_zero = values.has("all") || !values.operands.is_empty();
    let is_wanted = |counter: &&Counter| {
        (shows_zero || counter.value > 0) && counters::is_wanted(&counter.name, &values.operands)
    };
    let wanted: Vec<&Counter> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        return Err(Failure::new("no counter has such a name").hint("lacquer stat --all lists the names"));
    }
    if values.has("json") {
        let value = |c: &&Counter| {
            let value = json!({"value": c.value, "type": c.semantics, "description": c.oneliner});
            (c.name.clone(), value)
        };
        let all: Map<String, Value> = wanted.iter().map(value).collect();
        show(&format!("{}\n", Value::Object(all)));
    } else {
        show(&wanted.iter().map(|counter| line(counter)).collect::<String>());
    }
    Ok(ExitCode::SUCCESS)
}

fn line(counter: &Counter) -> String {
    let name = plain(counter.name.as_bytes());
    let line = format!("{name:<36} {:>16}  {}", counter.value, plain(counter.oneliner.as_bytes()));
    format!("{}\n", first_chars(&line, WIDTH).trim_end())
}
