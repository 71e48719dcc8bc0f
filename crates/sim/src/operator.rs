//! The operator, who bans pages and changes the VCL while clients are served.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use lacquer_cli::link::{Request, VclState};
use lacquer_sources::clock;
use lacquer_worker::simulated::Engine;
use tokio::time::sleep;

use crate::ledger::Ledger;
use crate::site;
use crate::vcl::Program;
use crate::wire::{Chance, below, one_of};

pub struct Operator {
    pub chance: Chance,
    pub ledger: Rc<RefCell<Ledger>>,
    pub engine: Rc<Engine>,
    pub programs: [Program; 2],
    /// Whether the VCL is changed occasionally.
    pub changes_vcl: bool,
    pub pages: u64,
}

impl Operator {
    /// Loads a program and uses it for new requests.
    pub fn load(&self, name: &str, program: usize) -> Result<(), String> {
        let program = self.programs[program].compiled()?;
        let name = name.to_owned();
        let load = Request::LoadVcl { name: name.clone(), program, state: VclState::Auto, warm: true };
        self.engine.carry_out(load)?;
        self.ledger.borrow_mut().loaded(&name);
        self.engine.carry_out(Request::UseVcl { name }).map(drop)
    }

    /// Runs until it is canceled.
    pub async fn work(self) {
        let mut now = "vcl0".to_owned();
        for number in 1.. {
            sleep(Duration::from_millis(below(&self.chance, 4000))).await;
            if !self.changes_vcl || below(&self.chance, 6) > 0 {
                self.ban();
                continue;
            }
            let next = format!("vcl{number}");
            let program = below(&self.chance, self.programs.len() as u64) as usize;
            let changed = self.load(&next, program).and_then(|()| self.discard(&now));
            if let Err(why) = changed {
                self.ledger.borrow_mut().fault(&format!("the VCL cannot be changed: {why}"));
            }
            now = next;
        }
    }

    fn discard(&self, name: &str) -> Result<(), String> {
        let name = name.to_owned();
        let cold = Request::SetVclState { name: name.clone(), state: VclState::Cold, warm: false };
        self.engine.carry_out(cold)?;
        self.engine.carry_out(Request::DiscardVcl { name }).map(drop)
    }

    fn ban(&self) {
        let path = site::changing(&self.chance, self.pages);
        let field = one_of(&self.chance, &["req.url", "obj.http.X-Path"]);
        let argv = ["ban", field, "==", &path].map(Vec::from).to_vec();
        let requested = clock::real();
        match self.engine.carry_out(Request::Cli { argv }) {
            Ok(_) => self.ledger.borrow_mut().invalidated(&path, requested),
            Err(why) => self.ledger.borrow_mut().fault(&format!("a ban is refused: {why}")),
        }
    }
}
