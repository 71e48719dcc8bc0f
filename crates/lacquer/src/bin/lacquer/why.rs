//! `lacquer why`: sends a request and explains what became of it.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use lacquer_inspect::page::plain;
use lacquer_inspect::request::{Target, header, is_method};
use lacquer_inspect::why::{Question, ask};
use lacquer_inspect::wire::{Means, Version};
use lacquer_manager::{Machine, show};
use lacquer_vcl::Files;

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::remote;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let target = Target::parse(values.operand().unwrap_or_default()).map_err(Failure::of)?;
    let headers =
        values.many("H").iter().map(|line| header(line)).collect::<Result<_, _>>().map_err(Failure::of)?;
    let method = values.one("method").unwrap_or("GET").to_owned();
    if !is_method(&method) {
        let what = format!("--method {} is not a method", plain(method.as_bytes()));
        return Err(Failure::new(what).hint("methods are words such as GET, HEAD and POST"));
    }
    let means = means(values, &target)?;
    let question = Question { target, method, headers, to: values.one("to").map(str::to_owned), means };
    let answer = ask(&remote::directory(values)?, &question).map_err(Failure::of)?;
    if values.has("json") {
        let mut json = answer.explanation.json();
        json["request"] = answer.exchange.into();
        json["status"] = answer.status.into();
        json["header"] = answer.header.into();
        show(&format!("{json}\n"));
    } else {
        let mut text = String::new();
        lacquer_inspect::page::wrap(&mut text, "", &answer.exchange);
        text.push_str(&answer.explanation.text(colors::wanted(io::stdout().is_terminal())));
        show(&text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns how the listener is reached: as the URL and the options say.
fn means(values: &Values, target: &Target) -> Result<Means, Failure> {
    let version = match (values.has("http1.1"), values.has("http2")) {
        (false, false) => Version::Any,
        (true, false) => Version::Http1,
        (false, true) => Version::Http2,
        (true, true) => return Err(Failure::new("--http1.1 and --http2 exclude each other")),
    };
    let mut means = Means { version, has_proxy_header: values.has("proxy-header"), ..Means::default() };
    if target.is_https {
        means.tls = Some(target.name().to_owned());
        if !values.has("insecure") {
            let file = values.one("cacert");
            let trusted = Machine::new().authorities(file);
            let named = |why: String| match file {
                Some(file) => Failure::new(format_args!("--cacert {}: {why}", plain(file.as_bytes()))),
                None => Failure::new(why).hint("--cacert FILE names a file with authorities"),
            };
            means.trusted = Some(trusted.map_err(named)?);
        }
    }
    Ok(means)
}
