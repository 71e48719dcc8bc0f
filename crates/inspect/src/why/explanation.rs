//! The explanation of a request, and its form as text and JSON.

use serde_json::{Value, json};

use super::decide::{Decision, decide};
use super::lifetime::Storing;
use super::story::Story;
use super::{sentences, steps};
use crate::page::{duration, plain, wrap};

/// The explanation of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub decision: Decision,
    pub headline: String,
    pub steps: Vec<steps::Step>,
    pub advice: String,
    /// The limits of the explanation.
    pub notes: Vec<String>,
}

/// Explains a request. Returns `None` if the story does not contain it.
pub fn explain(story: &Story) -> Option<Explanation> {
    let decision = decide(story, story.root)?;
    Some(Explanation {
        headline: sentences::headline(&decision),
        steps: steps::steps(story, story.root, &decision),
        advice: sentences::option(&decision)
            .filter(|_| story.is_of_options())
            .unwrap_or_else(|| sentences::advice(&decision)),
        decision,
        notes: Vec::new(),
    })
}

impl Explanation {
    /// Returns the explanation as a text of lines of at most 100 columns.
    pub fn text(&self, has_colors: bool) -> String {
        let bold = |text: &str| if has_colors { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        let mut out = String::new();
        let name = self.decision.outcome.name().to_ascii_uppercase();
        out.push_str(&bold(&name));
        out.push('\n');
        wrap(&mut out, "", &self.headline);
        out.push('\n');
        for step in &self.steps {
            for (at, line) in step.lines.iter().enumerate() {
                let name = if at == 0 { step.name } else { "" };
                wrap(&mut out, &format!("  {name:<11} "), line);
            }
        }
        for note in &self.notes {
            out.push('\n');
            wrap(&mut out, "Note: ", note);
        }
        out.push('\n');
        let mut last = String::new();
        wrap(&mut last, "What to change: ", &self.advice);
        out.push_str(&last.replacen("What to change:", &bold("What to change:"), 1));
        out
    }

    pub fn json(&self) -> Value {
        let steps: Vec<Value> =
            self.steps.iter().map(|step| json!({"name": step.name, "lines": step.lines})).collect();
        let lifetime = match &self.decision.storing {
            Some(Storing::Stored(l, _)) => json!({"ttl": l.ttl, "grace": l.grace, "keep": l.keep}),
            _ => Value::Null,
        };
        json!({
            "outcome": self.decision.outcome.name(),
            "explanation": self.headline,
            "steps": steps,
            "stored": matches!(self.decision.storing, Some(Storing::Stored(..))),
            "lifetime": lifetime,
            "waited": self.decision.waited,
            "restarts": self.decision.restarts,
            "advice": self.advice,
            "notes": self.notes,
        })
    }
}

/// Returns one line about the exchange as the client saw it.
pub fn exchange_line(
    request: &crate::request::Request,
    status: Option<u16>,
    body: u64,
    story: &Story,
) -> String {
    let root = story.transaction(story.root);
    let total = root.and_then(|root| root.timestamps().last().map(|stamp| stamp.since_start));
    let status = status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
    let time = total.map_or_else(String::new, |total| format!(" in {}", duration(total)));
    let url = format!("{}{}", request.host, request.path);
    format!("{} {}: {status}, {body} bytes{time}", request.method, plain(url.as_bytes()))
}
