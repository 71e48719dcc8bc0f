//! First stage of the command line: the options as given, without interpretation.

use crate::fault::{Fault, Outcome};

/// The option letters in getopt's notation: a colon follows those with an argument.
pub const LETTERS: &str = "?a:A:b:CdE:f:Fh:i:I:j:l:M:n:P:p:r:S:s:T:t:VW:w:x:";

/// Options that are evaluated in the order given, because the first error is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// `-a`
    Listen(String),
    /// `-A`
    Tls(String),
    /// `-f`
    Vcl(String),
    /// `-I`
    Init(String),
    /// `-p`, `-l`, `-t`: a parameter; without a value if `=` was missing.
    Param(String, Option<String>),
    /// `-r`
    ReadOnly(String),
    /// `-s`
    Storage(String),
    /// `-E`
    Extension(String),
    /// `-w`
    Admin(String),
}

/// The mode in which the daemon runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the background.
    #[default]
    Daemon,
    /// `-F`
    Foreground,
    /// `-d`: in the foreground with the CLI on stdin.
    Debug,
    /// `-C`: compile VCL, print, exit.
    Compile,
}

/// The command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawOptions {
    /// The mode that `-C`, `-d` and `-F` select.
    pub mode: Mode,
    /// Options that are evaluated in order.
    pub ordered: Vec<Ordered>,
    /// `-b`
    pub backend: Option<String>,
    /// `-h`
    pub hash: Option<String>,
    /// `-i`
    pub identity: Option<String>,
    /// `-j`
    pub jail: Option<String>,
    /// `-M`
    pub masters: Vec<String>,
    /// `-n`
    pub workdir: Option<String>,
    /// `-P`
    pub pid_files: Vec<String>,
    /// `-S`
    pub secret: Option<String>,
    /// `-T`
    pub cli: Vec<String>,
    /// `-W`
    pub waiter: Option<String>,
}

/// The action that the command line requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the daemon, or compile VCL for `-C`.
    Run(Box<RawOptions>),
    /// `-V`
    Version,
    /// `-x`
    Document(String),
    /// `-?`, or an error message about an unknown option.
    Usage(Option<String>),
}

/// An iterator over the option letters, like getopt.
struct Letters<'a> {
    words: std::slice::Iter<'a, String>,
    /// The unread letters of a word like `-dF`.
    rest: &'a str,
}

impl Letters<'_> {
    /// Returns the next letter or an error message. Returns `None` at the first word that is not an option.
    fn next(&mut self) -> Option<Result<char, String>> {
        if self.rest.is_empty() {
            let word = self.words.as_slice().first()?;
            if word == "--" {
                self.words.next();
                return None;
            }
            if !word.starts_with('-') || word == "-" {
                return None;
            }
            self.words.next();
            self.rest = &word[1..];
        }
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        if letter == ':' || !LETTERS.contains(letter) {
            return Some(Err(format!("invalid option -- '{letter}'")));
        }
        Some(Ok(letter))
    }

    fn argument(&mut self, letter: char) -> Result<String, String> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            return Ok(rest.to_owned());
        }
        self.words.next().cloned().ok_or_else(|| format!("option requires an argument -- '{letter}'"))
    }
}

fn takes_argument(letter: char) -> bool {
    LETTERS.split_once(letter).is_some_and(|(_, rest)| rest.starts_with(':'))
}

/// Parses the arguments of the program.
pub fn parse(words: &[String]) -> Outcome<Request> {
    let mut options = RawOptions::default();
    let (mut debug, mut foreground, mut compile) = (false, false, false);
    let mut letters = Letters { words: words.iter(), rest: "" };
    let mut first = true;
    while let Some(letter) = letters.next() {
        let letter = match letter {
            Ok(letter) => letter,
            Err(what) => return Ok(Request::Usage(Some(what))),
        };
        let argument = if takes_argument(letter) {
            match letters.argument(letter) {
                Ok(argument) => argument,
                Err(what) => return Ok(Request::Usage(Some(what))),
            }
        } else {
            String::new()
        };
        match letter {
            'V' | 'x' if !first => {
                return Err(Fault::usage(format!("-{letter} must be the first argument")));
            }
            'V' if words.len() != 1 => return Err(Fault::usage("Too many arguments for -V")),
            'V' => return Ok(Request::Version),
            'x' if !letters.words.as_slice().is_empty() => {
                return Err(Fault::usage("Too many arguments for -x"));
            }
            'x' => return Ok(Request::Document(argument)),
            '?' => return Ok(Request::Usage(None)),
            'C' => compile = true,
            'd' => debug = true,
            'F' => foreground = true,
            _ => options.take(letter, argument),
        }
        first = false;
    }
    if let Some(extra) = letters.words.next() {
        return Err(Fault::usage(format!("Too many arguments ({extra}...)")));
    }
    options.check(debug, foreground, compile)?;
    Ok(Request::Run(Box::new(options)))
}

impl RawOptions {
    fn take(&mut self, letter: char, argument: String) {
        let mut ordered = |option| self.ordered.push(option);
        match letter {
            'a' => ordered(Ordered::Listen(argument)),
            'A' => ordered(Ordered::Tls(argument)),
            'f' => ordered(Ordered::Vcl(argument)),
            'I' => ordered(Ordered::Init(argument)),
            'E' => ordered(Ordered::Extension(argument)),
            'w' => ordered(Ordered::Admin(argument)),
            'l' => ordered(Ordered::Param("vsl_space".to_owned(), Some(argument))),
            't' => ordered(Ordered::Param("default_ttl".to_owned(), Some(argument))),
            'p' => match argument.split_once('=') {
                Some((name, value)) => ordered(Ordered::Param(name.to_owned(), Some(value.to_owned()))),
                None => ordered(Ordered::Param(argument, None)),
            },
            'r' => ordered(Ordered::ReadOnly(argument)),
            's' => ordered(Ordered::Storage(argument)),
            'b' => self.backend = Some(argument),
            'h' => self.hash = Some(argument),
            'i' => self.identity = Some(argument),
            'j' => self.jail = Some(argument),
            'M' => self.masters.push(argument),
            'n' => self.workdir = Some(argument),
            'P' => self.pid_files.push(argument),
            'S' => self.secret = Some(argument),
            'T' => self.cli.push(argument),
            'W' => self.waiter = Some(argument),
            _ => {}
        }
    }

    fn count(&self, which: fn(&Ordered) -> bool) -> usize {
        self.ordered.iter().filter(|option| which(option)).count()
    }

    /// Returns whether `-f` was given, even with an empty argument.
    pub fn has_vcl(&self) -> bool {
        self.count(|option| matches!(option, Ordered::Vcl(_))) > 0
    }

    /// Returns the arguments of `-w`.
    pub fn admin(&self) -> impl Iterator<Item = &str> {
        self.ordered.iter().filter_map(|option| match option {
            Ordered::Admin(argument) => Some(argument.as_str()),
            _ => None,
        })
    }

    /// Checks `-W` and `-h`. Their values have no effect here, but must be names that Varnish accepts.
    fn check_methods(&self) -> Outcome<()> {
        if let Some(waiter) = self.waiter.as_deref().filter(|w| !["epoll", "poll"].contains(w)) {
            return Err(Fault::usage(format!("Unknown waiter method \"{waiter}\"")));
        }
        self.hash_method().map(drop)
    }

    /// Returns the method that `-h` names, for the banner.
    pub fn hash_method(&self) -> Outcome<&str> {
        let hash = self.hash.as_deref().unwrap_or("critbit");
        let mut words = hash.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let method = words.next().ok_or_else(|| Fault::usage("-h argument is empty"))?;
        match (method, words.count()) {
            ("critbit" | "simple" | "simple_list", 0) | ("classic", 0 | 1) => Ok(method),
            ("critbit" | "simple" | "simple_list", _) => {
                let name = method.trim_end_matches("_list");
                Err(Fault::usage(format!("Hash method \"{name}\" takes no arguments")))
            }
            ("classic", _) => Err(Fault::usage("(-hclassic) too many arguments")),
            _ => Err(Fault::usage(format!("Unknown hash method \"{method}\""))),
        }
    }

    fn check(&mut self, debug: bool, foreground: bool, compile: bool) -> Outcome<()> {
        let has_program = self.backend.is_some() || self.has_vcl();
        let wrong = [
            (self.backend.is_some() && self.has_vcl(), "Only one of -b or -f can be specified"),
            (debug && foreground, "Only one of -d or -F can be specified"),
            (compile && !has_program, "-C needs either -b <backend> or -f <vcl_file>"),
            (debug && compile, "-d makes no sense with -C"),
            (foreground && compile, "-F makes no sense with -C"),
            (!debug && !has_program, "Neither -b nor -f given. (use -f '' to override)"),
            (self.count(|option| matches!(option, Ordered::Init(_))) > 1, "\tOnly one -I allowed"),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(Fault::usage(*what));
        }
        self.check_methods()?;
        self.mode = match (debug, foreground, compile) {
            (true, ..) => Mode::Debug,
            (_, true, _) => Mode::Foreground,
            (.., true) => Mode::Compile,
            _ => Mode::Daemon,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Outcome<Request> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn options(line: &str) -> RawOptions {
        match parse_line(line).unwrap() {
            Request::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_of_varnishtest_is_parsed() {
        let options = options(
            "-d -n /tmp/v1 -i v1 -l 2m -p auto_restart=off -p vsl_mask=+Debug -a 127.0.0.1:0 -M 127.0.0.1 -P /tmp/p",
        );
        assert_eq!(options.mode, Mode::Debug);
        assert_eq!(options.workdir.as_deref(), Some("/tmp/v1"));
        assert_eq!(options.ordered[0], Ordered::Param("vsl_space".into(), Some("2m".into())));
        assert_eq!(options.ordered[3], Ordered::Listen("127.0.0.1:0".into()));
        assert_eq!(options.pid_files, ["/tmp/p"]);
    }

    #[test]
    fn letters_may_be_combined() {
        assert_eq!(options("-Fbnone").backend.as_deref(), Some("none"));
        assert_eq!(options("-junix,user=x -d").jail.as_deref(), Some("unix,user=x"));
    }

    #[test]
    fn bad_options_are_reported() {
        for (line, text) in [
            ("-d -x foo", "-x must be the first argument"),
            ("-d -V foo", "-V must be the first argument"),
            ("-x foo bar", "Too many arguments for -x"),
            ("-V -V", "Too many arguments for -V"),
            ("foo", "Too many arguments (foo...)"),
            ("-C", "-C needs either -b <backend> or -f <vcl_file>"),
            ("-d -F", "Only one of -d or -F can be specified"),
            ("-b a -f b", "Only one of -b or -f can be specified"),
            ("-C -b None -d", "-d makes no sense with -C"),
            ("-C -b None -F", "-F makes no sense with -C"),
            ("-n x", "Neither -b nor -f given"),
            ("-d -I a -I b", "Only one -I allowed"),
            ("-d -W kqueue", "Unknown waiter method \"kqueue\""),
            ("-d -h ,", "-h argument is empty"),
            ("-d -h foo", "Unknown hash method \"foo\""),
            ("-d -h critbit,1", "Hash method \"critbit\" takes no arguments"),
            ("-d -h simple_list,1", "Hash method \"simple\" takes no arguments"),
            ("-d -h classic,5,6", "(-hclassic) too many arguments"),
        ] {
            let fault = parse_line(line).unwrap_err();
            assert!(fault.to_string().contains(text), "{line}: {fault}");
            assert_eq!(fault.code(), 2);
        }
        assert_eq!(parse_line("-B"), Ok(Request::Usage(Some("invalid option -- 'B'".into()))));
        assert_eq!(parse_line("-d -?"), Ok(Request::Usage(None)));
    }
}
