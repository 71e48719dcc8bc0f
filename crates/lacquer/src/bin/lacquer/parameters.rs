//! Checks parameters before the daemon starts, so that a mistake is reported with the option or the line that has it.

use lacquer_manager::one_line;
use lacquer_params::ParamSet;
use lacquer_tools::site::Wrong;

use crate::args::Values;
use crate::failure::Failure;

/// The parameters of a daemon that is to start.
pub struct Parameters {
    set: ParamSet,
}

/// The part of `NAME=VALUE` that the daemon refuses.
pub enum Refused {
    Name(Wrong),
    Value(Wrong),
}

impl Parameters {
    /// `storage` is the value of `--storage`, whose name some parameters may have as their value.
    pub fn new(storage: Option<&str>) -> Parameters {
        let mut set = ParamSet::new();
        let named = storage.and_then(|text| text.split(',').next()?.split_once('='));
        set.add_storage(named.map_or("s0", |(name, _)| name));
        Parameters { set }
    }

    /// Sets a parameter, of the form `NAME=VALUE`.
    pub fn set(&mut self, text: &str) -> Result<(), Refused> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Refused::Name(Wrong {
                what: format!("`{}` has no value", text.escape_debug()),
                hint: "write NAME=VALUE, such as default_ttl=300".to_owned(),
            }));
        };
        let Err(error) = self.set.set(name, value) else { return Ok(()) };
        let Some(range) = self.set.range(name) else {
            let hint = ParamSet::similar(name).map(|similar| format!("did you mean `{similar}`?"));
            return Err(Refused::Name(Wrong {
                what: format!("there is no parameter `{}`", name.escape_debug()),
                hint: hint.unwrap_or_else(|| "docs/reference/params.md lists them".to_owned()),
            }));
        };
        // Its last line repeats name and value.
        let why = error.text.split("\n(attempting").next().unwrap_or_default();
        let what = format!("`{name}` cannot be {}: {}", value.escape_debug(), one_line(why));
        Err(Refused::Value(Wrong { what, hint: range }))
    }
}

/// Fails if the daemon would refuse an option `-p`.
pub fn check(values: &Values) -> Result<(), Failure> {
    let mut parameters = Parameters::new(values.one("storage"));
    for text in values.many("p") {
        if let Err(Refused::Name(wrong) | Refused::Value(wrong)) = parameters.set(text) {
            let what = format!("-p {}: {}", text.escape_debug(), wrong.what);
            return Err(Failure::new(what).hint(wrong.hint));
        }
    }
    Ok(())
}
