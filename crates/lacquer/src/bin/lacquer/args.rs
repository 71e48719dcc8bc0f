//! The command line. Parsing, help and suggestions use the same tables. It is small enough that a library would cost
//! more than it saves.

use crate::failure::Failure;
use lacquer_inspect::page::wrap;
use lacquer_manager::show;
use lacquer_params::nearest;
use lacquer_tools::manual::{Flag, Subcommand};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

/// An option of the form `--name VALUE` or `--name=VALUE`; `-n VALUE` if its name is one letter.
#[derive(Clone, Copy)]
pub struct Opt {
    name: &'static str,
    value: &'static str,
    help: &'static str,
    repeats: bool,
    /// Whether the value may be left out.
    is_optional: bool,
    /// Why the command cannot have the option, which others have. The help is then what to do instead.
    refused: Option<&'static str>,
}

impl Opt {
    pub const fn one(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { name, value, help, repeats: false, is_optional: false, refused: None }
    }

    /// An option of other commands that this one cannot have, for a reason. `help` is what to do instead.
    pub const fn refused(name: &'static str, why: &'static str, help: &'static str) -> Self {
        Self { refused: Some(why), ..Self::one(name, "VALUE", help) }
    }

    /// An option whose value may be left out. It is then empty.
    pub const fn optional(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { is_optional: true, ..Self::one(name, value, help) }
    }

    /// An option without a value.
    pub const fn flag(name: &'static str, help: &'static str) -> Self {
        Self::one(name, "", help)
    }

    pub const fn many(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { repeats: true, ..Self::one(name, value, help) }
    }
}

/// A command and all parts of its help. An operand whose name ends with dots may be given several times; one in brackets
/// may be left out.
pub struct Command {
    pub name: &'static str,
    pub operand: Option<(&'static str, &'static str)>,
    pub summary: &'static str,
    pub about: &'static str,
    pub options: &'static [Opt],
    pub examples: &'static [(&'static str, &'static str)],
    pub run: fn(&Values) -> Result<ExitCode, Failure>,
}

impl Command {
    /// Returns the options that the command has.
    fn offered(&self) -> impl Iterator<Item = &Opt> {
        self.options.iter().filter(|option| option.refused.is_none())
    }

    /// Returns the command for its manual page.
    pub fn describe(&self) -> Subcommand {
        let flag =
            |option: &Opt| Flag { name: option.name, value: option.value, help: option.help.to_owned() };
        Subcommand {
            name: self.name,
            operand: self.operand,
            summary: self.summary,
            about: self.about,
            options: self.offered().map(flag).collect(),
            examples: self.examples,
        }
    }
}

/// The options and the operands of a command line.
#[derive(Clone, Default)]
pub struct Values {
    options: BTreeMap<&'static str, Vec<String>>,
    pub operands: Vec<String>,
}

impl Values {
    /// Returns the first operand.
    pub fn operand(&self) -> Option<&str> {
        self.operands.first().map(String::as_str)
    }

    pub fn one(&self, name: &str) -> Option<&str> {
        self.many(name).last().map(String::as_str)
    }

    /// Returns whether an option without a value was given.
    pub fn has(&self, name: &str) -> bool {
        !self.many(name).is_empty()
    }

    /// Adds a value of an option, as if it had been given.
    pub fn add(&mut self, name: &'static str, value: &str) {
        self.options.entry(name).or_default().push(value.to_owned());
    }

    pub fn many(&self, name: &str) -> &[String] {
        self.options.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Finds the command, parses the rest and runs it. Fails too if its output could not be written.
pub fn dispatch(commands: &[Command], words: &[String]) -> Result<ExitCode, Failure> {
    let done = act(commands, words).and_then(|code| match lacquer_manager::unwritten() {
        None => Ok(code),
        Some(why) => Err(Failure::new(why).hint("what was written is incomplete")),
    });
    done.map_err(|failure| match json_place(commands, words) {
        Some(place) => failure.in_json(place),
        None => failure,
    })
}

fn act(commands: &[Command], words: &[String]) -> Result<ExitCode, Failure> {
    let Some((first, rest)) = words.split_first() else {
        show(&overview(commands));
        return Ok(ExitCode::from(2));
    };
    match first.as_str() {
        "-h" | "--help" | "help" => {
            let text = match rest {
                [] => overview(commands),
                name => command_help(find(commands, &name.join(" "))?),
            };
            show(&text);
            return Ok(ExitCode::SUCCESS);
        }
        "-V" | "--version" | "version" => {
            show(concat!("lacquer ", env!("CARGO_PKG_VERSION"), "\n"));
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let (command, rest) = match split(commands, words) {
        Some(found) => found,
        None => (find(commands, first)?, &words[1..]),
    };
    if rest.iter().any(|w| w == "-h" || w == "--help") {
        show(&command_help(command));
        return Ok(ExitCode::SUCCESS);
    }
    (command.run)(&parse(command, rest)?)
}

/// Returns the command that a command line begins with, whose name may have two words, and the rest.
fn split<'a, 'w>(commands: &'a [Command], words: &'w [String]) -> Option<(&'a Command, &'w [String])> {
    let named = |count: usize| {
        let (name, rest) = words.split_at_checked(count)?;
        let name = name.join(" ");
        commands.iter().find(|command| command.name == name).map(|command| (command, rest))
    };
    named(2).or_else(|| named(1))
}

/// The options that name a daemon.
const DAEMONS: [&str; 4] = ["-n", "--name", "--address", "--to"];

/// Returns the command and the daemon of a command line that asks for JSON.
fn json_place(commands: &[Command], words: &[String]) -> Option<String> {
    let (command, rest) = split(commands, words)?;
    let mut options = rest.iter().take_while(|word| *word != "--").peekable();
    let (mut is_json, mut place) = (false, format!("lacquer {}", command.name));
    while let Some(word) = options.next() {
        is_json |= word == "--json";
        if DAEMONS.contains(&word.as_str()) {
            let value = options.peek().map_or("", |value| value.as_str());
            let _ = write!(place, " {word} {value}");
        } else if DAEMONS.iter().any(|name| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        {
            let _ = write!(place, " {word}");
        }
    }
    (is_json && command.options.iter().any(|option| option.name == "json")).then_some(place)
}

fn find<'a>(commands: &'a [Command], name: &str) -> Result<&'a Command, Failure> {
    commands.iter().find(|c| c.name == name).ok_or_else(|| {
        let is_part = |c: &&Command| c.name.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
        let parts: Vec<String> =
            commands.iter().filter(is_part).map(|c| format!("lacquer {}", c.name)).collect();
        if !parts.is_empty() {
            return Failure::new(format_args!("`{name}` needs another word"))
                .hint(format_args!("the commands are {}", parts.join(", ")));
        }
        let names = commands.iter().map(|c| c.name);
        Failure::new(format_args!("there is no command `{name}`")).hint(suggest(
            "",
            name,
            names,
            "lacquer --help lists the commands",
        ))
    })
}

fn parse(command: &Command, words: &[String]) -> Result<Values, Failure> {
    let mut values = Values::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            // Only operands follow.
            words.by_ref().try_for_each(|word| add_operand(command, &mut values, word))?;
            break;
        }
        let letter = word.strip_prefix('-').filter(|name| is_letter(command, name));
        let Some(long) = word.strip_prefix("--").or(letter) else {
            take_operand(command, &mut values, word)?;
            continue;
        };
        let (name, attached) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let option = command.options.iter().find(|o| o.name == name).ok_or_else(|| {
            let help = format!("lacquer {} --help lists the options", command.name);
            let names = command.offered().map(|o| o.name);
            Failure::new(format_args!("`{}` has no option --{name}", command.name))
                .hint(suggest("--", name, names, &help))
        })?;
        if let Some(why) = option.refused {
            let what = format!("`{}` has no option --{name}: {why}", command.name);
            return Err(Failure::new(what).hint(option.help));
        }
        let attached = match attached {
            _ if option.value.is_empty() => Some(String::new()),
            None if option.is_optional => {
                let next = words.next_if(|word| !word.starts_with('-'));
                Some(next.cloned().unwrap_or_default())
            }
            attached => attached,
        };
        let value = attached.or_else(|| words.next().cloned()).ok_or_else(|| {
            Failure::new(format_args!("--{name} needs a value: --{name} {}", option.value)).hint(option.help)
        })?;
        let given = values.options.entry(option.name).or_default();
        if !option.repeats && !given.is_empty() {
            return Err(Failure::new(format_args!("--{name} was given twice")).hint("give it once"));
        }
        given.push(value);
    }
    match command.operand {
        Some((what, help)) if values.operands.is_empty() && !what.starts_with('[') => {
            let what = what.trim_end_matches('.');
            Err(Failure::new(format_args!("`{}` needs {what}: {help}", command.name)))
        }
        _ => Ok(values),
    }
}

/// Returns whether the command has an option with this name of one letter.
fn is_letter(command: &Command, name: &str) -> bool {
    name.len() == 1 && command.options.iter().any(|o| o.name == name)
}

fn take_operand(command: &Command, values: &mut Values, word: &str) -> Result<(), Failure> {
    if word.starts_with('-') && word != "-" {
        let hint = format!(
            "options have long names, such as --listen and --backend; see lacquer {} --help",
            command.name
        );
        return Err(Failure::new(format_args!("`{}` has no option {word}", command.name)).hint(hint));
    }
    add_operand(command, values, word)
}

fn add_operand(command: &Command, values: &mut Values, word: &str) -> Result<(), Failure> {
    let accepts =
        command.operand.is_some_and(|(what, _)| what.ends_with("...") || values.operands.is_empty());
    if !accepts {
        let hint = format!("lacquer {} --help lists its options", command.name);
        return Err(Failure::new(format_args!("`{}` accepts no argument `{word}`", command.name)).hint(hint));
    }
    values.operands.push(word.to_owned());
    Ok(())
}

fn overview(commands: &[Command]) -> String {
    let mut text = String::from(
        "Lacquer caches the responses of your web server and serves them fast.\n\nUsage: lacquer COMMAND [OPTIONS]\n\n",
    );
    for c in commands {
        let _ = writeln!(text, "  {:<15} {}", c.name, c.summary);
    }
    text.push_str("\nlacquer COMMAND --help describes a command.\n");
    text.push_str("`lacquerd` is the daemon; it has the options of varnishd.\n");
    text
}

fn command_help(c: &Command) -> String {
    let mut text = format!("{}\n\nUsage: lacquer {}", c.about, c.name);
    if !c.options.is_empty() {
        text.push_str(" [OPTIONS]");
    }
    if let Some((what, help)) = c.operand {
        let _ = write!(text, " {what}\n\n");
        wrap(&mut text, &format!("  {what:<24} "), help);
        text.truncate(text.trim_end().len());
    }
    text.push_str("\n\n");
    for o in c.offered() {
        let dashes = if o.name.len() == 1 { "-" } else { "--" };
        let option = format!("  {:<24} ", format!("{dashes}{} {}", o.name, o.value));
        wrap(&mut text, &option, o.help);
    }
    text.push_str("\nExamples:\n");
    for (line, what) in c.examples {
        let (column, indent) = (59, " ".repeat(59));
        if line.chars().count() + 5 > column {
            let _ = writeln!(text, "  {line}");
            wrap(&mut text, &indent, what);
        } else {
            wrap(&mut text, &format!("  {line:<54}   "), what);
        }
    }
    text
}

/// Suggests the most similar known word. Returns `otherwise` if none is similar.
fn suggest<'a>(prefix: &str, word: &str, known: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    nearest(word, known)
        .map_or_else(|| otherwise.to_owned(), |known| format!("did you mean {prefix}{known}?"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const COMMAND: Command = Command {
        name: "run",
        operand: None,
        summary: "",
        about: "",
        options: &[
            Opt::many("listen", "ADDR", ""),
            Opt::one("backend", "URL", ""),
            Opt::optional("ignore", "[NAMES]", ""),
        ],
        examples: &[],
        run: |_| Ok(ExitCode::SUCCESS),
    };

    fn parsed(line: &str) -> Result<Values, Failure> {
        parse(&COMMAND, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn no_help_is_wider_than_a_terminal() {
        let helps = crate::COMMANDS.iter().map(|c| (c.name, command_help(c)));
        for (name, text) in helps.chain([("", overview(crate::COMMANDS))]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "lacquer {name} --help: {line}");
            }
        }
    }

    /// Options of `lacquer run` that a file cannot have by their own names. Parameters of the daemon are a table there.
    const NOT_IN_FILE: [&str; 3] = ["config", "print-vcl", "p"];

    #[test]
    fn lacquer_toml_has_the_options_of_lacquer_run() {
        let contents = lacquer_tools::settings::read(b"no-such-name-at-all = 1");
        let hint = &contents.mistakes[0].wrong.hint;
        let names = hint.strip_prefix("the names are ").and_then(|rest| rest.split(" and the table").next());
        let of_file: BTreeSet<&str> = names.expect("it lists the names").split(", ").collect();
        let all = crate::run_options::ALL.iter().map(|option| option.name);
        let of_line: BTreeSet<&str> = all.filter(|name| !NOT_IN_FILE.contains(name)).collect();
        assert_eq!(of_file, of_line);
    }

    #[test]
    fn both_forms_of_an_option_are_parsed() {
        let v = parsed("--listen :1 --backend=b --listen=:2").expect("valid");
        assert_eq!(v.many("listen"), [":1", ":2"]);
        assert_eq!(v.one("backend"), Some("b"));
    }

    #[test]
    fn a_value_may_be_left_out() {
        for (line, value) in
            [("--ignore", ""), ("--ignore --listen :1", ""), ("--ignore a", "a"), ("--ignore=b", "b")]
        {
            assert_eq!(parsed(line).expect("valid").one("ignore"), Some(value), "{line}");
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        for (line, message) in [
            ("--bakend x", "has no option --bakend"),
            ("--listen", "needs a value"),
            ("--backend a --backend b", "given twice"),
            ("site.vcl", "accepts no argument `site.vcl`"),
            ("-b x", "has no option -b"),
        ] {
            let failure = parsed(line).err().expect("invalid");
            assert!(format!("{failure:?}").contains(message), "{line}: {failure:?}");
        }
        let two = [Command { name: "vcl load", ..COMMAND }, Command { name: "vcl use", ..COMMAND }];
        let (what, hint) = find(&two, "vcl").err().expect("not a command").texts();
        assert_eq!(what, "`vcl` needs another word");
        assert_eq!(hint.as_deref(), Some("the commands are lacquer vcl load, lacquer vcl use"));
        assert!(find(&two, "vc").is_err() && find(&two, "vcl use").is_ok());
        assert_eq!(
            suggest("--", "bakend", ["listen", "backend"].into_iter(), "-"),
            "did you mean --backend?"
        );
        assert_eq!(suggest("", "x", ["listen"].into_iter(), "-"), "-");
    }
}
