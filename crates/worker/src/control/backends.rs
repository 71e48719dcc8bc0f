//! The commands `backend.list` and `backend.set_health`.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use lacquer_cli::columns::{self, Cell, left};
use lacquer_cli::{glob, json, status};
use lacquer_engine::backends::{Origin, OriginLeaf};
use lacquer_engine::named_origin::NamedOrigin;
use lacquer_engine::vcl_table::{Entry, Vcl};
use lacquer_http::date;
use lacquer_sources::clock;
use lacquer_vcl_runtime::director::DirectorCell;
use lacquer_vcl_runtime::{AdminHealth, BackendId, Health};

use super::Reply;
use crate::process::Process;

/// A backend or director that matches a pattern.
struct Found {
    vcl: Arc<Vcl>,
    /// The name in the form `vcl.backend`.
    name: String,
    id: BackendId,
    cell: Arc<DirectorCell>,
}

impl Found {
    fn origin(&self) -> Option<&Origin> {
        self.cell.director.as_any().downcast_ref::<OriginLeaf>().map(|leaf| &*leaf.0)
    }

    /// Returns the origins of a backend by name, each with the word of its addresses.
    fn named_origins(&self) -> Vec<(String, Arc<Origin>)> {
        let named = self.cell.director.as_any().downcast_ref::<NamedOrigin>();
        named.map_or_else(Vec::new, NamedOrigin::named_origins)
    }

    fn admin_word(&self) -> &'static str {
        match self.cell.admin() {
            AdminHealth::Auto if !self.cell.director.determines_health() => "healthy",
            AdminHealth::Auto => "probe",
            AdminHealth::Healthy => "healthy",
            AdminHealth::Sick => "sick",
            AdminHealth::Deleted => "deleted",
        }
    }

    fn health(&self) -> Health {
        let instance = self.vcl.loaded.instance();
        instance.directors.healthy(self.id, instance)
    }

    fn list(&self, details: bool, json: bool) -> String {
        self.cell.director.list(self.vcl.loaded.instance(), details, json)
    }

    fn cells(&self) -> Vec<Cell> {
        let text = self.list(false, false);
        let (probe, health) = text.split_once('\t').unwrap_or((&text, "healthy"));
        let changed = date::format(self.health().changed);
        vec![
            left(&self.name),
            left(self.admin_word()),
            left(probe),
            left(health),
            left(String::from_utf8_lossy(&changed)),
        ]
    }

    fn json(&self, details: bool) -> String {
        let mut out = format!(
            "  {}: {{\n    \"type\": \"{}\",\n    \"admin_health\": \"{}\",\n    \"probe_message\": {},\n",
            json::string(&self.name),
            self.cell.director.kind(),
            self.admin_word(),
            self.list(false, true)
        );
        if details {
            let value = self.list(true, true);
            let value = value.trim_end().trim_end_matches(',');
            if !value.is_empty() {
                let _ = writeln!(out, "    \"probe_details\": {value},");
            }
            if let Some(origin) = self.origin() {
                for (family, addr) in [("ipv4", origin.spec.address.ipv4), ("ipv6", origin.spec.address.ipv6)]
                {
                    if let Some(addr) = addr {
                        let _ = writeln!(out, "    \"{family}\": \"{}\",", addr.ip());
                    }
                }
            }
        }
        let _ = write!(out, "    \"last_change\": {:.3}\n  }}", self.health().changed);
        out
    }
}

/// Returns the backends and directors that match a pattern. A pattern without a dot matches names of the active
/// program.
fn find(process: &Process, pattern: Option<&str>) -> Vec<Found> {
    let (pattern, vcls) = match pattern {
        Some(pattern) if pattern.contains('.') => (pattern.to_owned(), programs(process)),
        other => {
            let Some(active) = process.shared().vcls().active() else { return Vec::new() };
            let within = other.filter(|p| !p.is_empty()).unwrap_or("*");
            (format!("{}.{within}", active.name), vec![active])
        }
    };
    let mut found = Vec::new();
    for vcl in vcls {
        for (id, cell) in vcl.loaded.instance().directors.all() {
            let name = format!("{}.{}", vcl.name, cell.director.name());
            if cell.admin() != AdminHealth::Deleted && glob::matches(&pattern, &name) {
                found.push(Found { vcl: vcl.clone(), name, id, cell });
            }
        }
    }
    found
}

fn programs(process: &Process) -> Vec<Arc<Vcl>> {
    let present = process.shared().vcls().entries().into_iter().filter_map(|entry| match entry {
        Entry::Program(vcl) => Some(vcl),
        Entry::Label { .. } => None,
    });
    present.chain(process.shared().vcls().leaving()).collect()
}

#[derive(Default)]
struct Flags {
    json: bool,
    details: bool,
}

/// Parses the flags. Also returns the number of words that they take.
fn flags(args: &[String]) -> Result<(Flags, usize), Reply> {
    let mut flags = Flags::default();
    let mut count = 0;
    for letters in args.iter().map_while(|word| word.strip_prefix('-')) {
        count += 1;
        for letter in letters.chars() {
            match letter {
                'j' => flags.json = true,
                'p' => flags.details = !flags.details,
                other => return Err(Reply::error(status::PARAM, format!("Invalid flag {other}"))),
            }
        }
    }
    Ok((flags, count))
}

pub fn list(process: &Process, argv: &[String]) -> Reply {
    let words = argv.get(1..).unwrap_or_default();
    let (flags, count) = match flags(words) {
        Ok(read) => read,
        Err(refusal) => return refusal,
    };
    let pattern = match &words[count..] {
        [] => None,
        [pattern] => Some(pattern.as_str()),
        _ => return Reply::error(status::PARAM, "Too many arguments"),
    };
    let found = find(process, pattern);
    if flags.json {
        let objects: Vec<String> = found.iter().map(|f| f.json(flags.details)).collect();
        let elements = format!("{{\n{}\n}}", objects.join(",\n"));
        return Reply::ok(json::reply(3, argv, clock::real(), &elements));
    }
    let mut lines =
        vec![Line::Cells(["Backend name", "Admin", "Probe", "Health", "Last change"].map(left).to_vec())];
    for found in &found {
        lines.push(Line::Cells(found.cells()));
        if flags.details {
            // The text continues the line of the row, so its first line is empty. An empty line follows it.
            let text = found.list(true, false);
            let mut details = text.trim_end_matches('\n').split('\n').skip(1).map(Line::of).peekable();
            let set_off = details.peek().map(|_| Line::Text(String::new()));
            lines.extend(details.chain(set_off));
        }
    }
    Reply::ok(aligned(&lines))
}

/// A line of `backend.list`: cells, or text that is printed unchanged.
enum Line {
    Cells(Vec<Cell>),
    Text(String),
}

impl Line {
    fn of(text: &str) -> Line {
        if text.contains('\t') && !text.starts_with(' ') {
            Line::Cells(text.split('\t').map(left).collect())
        } else {
            Line::Text(text.to_owned())
        }
    }
}

/// Aligns all cells in the same columns, including those of details.
fn aligned(lines: &[Line]) -> String {
    let rows: Vec<Vec<Cell>> = lines
        .iter()
        .filter_map(|l| if let Line::Cells(cells) = l { Some(cells.clone()) } else { None })
        .collect();
    let table = columns::layout(&rows);
    let mut rows = table.lines();
    let mut out = String::new();
    for line in lines {
        match line {
            Line::Cells(_) => out.push_str(rows.next().unwrap_or_default()),
            Line::Text(text) => out.push_str(text),
        }
        out.push('\n');
    }
    out
}

pub fn set_health(process: &Process, args: &[String]) -> Reply {
    let [pattern, state] = args else {
        return Reply::error(status::TOO_FEW, "Too few parameters\n");
    };
    let health = match state.to_ascii_lowercase().as_str() {
        "auto" => AdminHealth::Auto,
        "healthy" => AdminHealth::Healthy,
        "sick" => AdminHealth::Sick,
        _ => return Reply::error(status::PARAM, format!("Invalid state {state}")),
    };
    let found = find(process, Some(pattern));
    for backend in &found {
        backend.cell.set_admin(health);
        if let Some(named) = backend.cell.director.as_any().downcast_ref::<NamedOrigin>()
            && !backend.health().healthy
        {
            named.origins().iter().for_each(|origin| origin.wake_all());
        }
        if let Some(origin) = backend.origin()
            && !backend.health().healthy
        {
            origin.wake_all();
        }
    }
    if found.is_empty() {
        return Reply::error(status::PARAM, "No Backends matches");
    }
    Reply::ok("")
}

/// Returns the health of all backends and directors, one a line: the name, what the operator set, the bitmap of good
/// probes, and for each origin of a backend by name the word of its addresses with its bitmap.
pub fn health(process: &Process) -> String {
    let line = |found: &Found| {
        let admin = match found.cell.admin() {
            AdminHealth::Healthy => "healthy",
            AdminHealth::Sick => "sick",
            AdminHealth::Auto | AdminHealth::Deleted => "auto",
        };
        let prober = found.origin().and_then(|origin| origin.prober.as_ref());
        let good = prober.map_or_else(|| "-".to_owned(), |prober| format!("{:x}", prober.good_attempts()));
        let mut line = format!("{} {admin} {good}", found.name);
        for (word, origin) in found.named_origins() {
            if let Some(prober) = &origin.prober {
                let _ = write!(line, " {word}={:x}", prober.good_attempts());
            }
        }
        line.push('\n');
        line
    };
    find(process, Some("*.*")).iter().map(line).collect()
}

/// Continues with the health that another worker has reported. Backends and origins that it does not know stay as they are.
pub fn take_health(process: &Process, text: &str) {
    let all = find(process, Some("*.*"));
    let by_name: HashMap<&str, &Found> = all.iter().map(|found| (found.name.as_str(), found)).collect();
    let resume = |origin: &Origin, good: &str| {
        if let (Some(prober), Ok(good)) = (&origin.prober, u64::from_str_radix(good, 16)) {
            prober.resume(good);
            crate::probing::report(origin, process.shared().log());
        }
    };
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(admin), Some(good)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Some(backend) = by_name.get(name) else { continue };
        match admin {
            "healthy" => backend.cell.set_admin(AdminHealth::Healthy),
            "sick" => backend.cell.set_admin(AdminHealth::Sick),
            _ => {}
        }
        if let Some(origin) = backend.origin() {
            resume(origin, good);
        }
        let named = backend.named_origins();
        for (word, good) in words.filter_map(|word| word.split_once('=')) {
            if let Some((_, origin)) = named.iter().find(|(known, _)| known == word) {
                resume(origin, good);
            }
        }
    }
}
