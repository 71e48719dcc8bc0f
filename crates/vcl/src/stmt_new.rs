//! The statement `new`, which creates an object of a module.

use std::rc::Rc;

use crate::compiler::{Compiler, Mention, Mode, Res, Stop};
use crate::lexer::Tok;
use crate::program::{At, Stmt};
use crate::symbols::{Fmt, Kind, Meaning, UseKind};

impl Compiler<'_> {
    /// Parses `new name = module.type(…);`.
    pub fn new_statement(&mut self, at: At, out: &mut Vec<Stmt>) -> Res<()> {
        self.want(Tok::Id)?;
        self.want_name("VCL object")?;
        let symbol = self.handle_symbol(Fmt::Instance)?.ok_or(Stop)?;
        self.symbols.list[symbol].mentions.may_be_unused = true;
        self.skip(Tok::Assign)?;
        self.want(Tok::Id)?;
        let type_symbol = self.some_symbol(Kind::Object, Mode::Existing, Mention::Nothing)?;
        let Meaning::Object { import, signature, fmt } = self.symbols.list[type_symbol].meaning.clone()
        else {
            return Err(Stop);
        };
        self.symbols.list[symbol].fmt = fmt;
        let object = self.global_index(symbol);
        if let Some(entry) = self.program.modules.objects.get_mut(object as usize) {
            entry.import = import;
            entry.type_name.clone_from(&signature.name);
            entry.null_ok = signature.null_ok;
        }
        let name = self.t - 1;
        let init = Rc::new(signature.init.clone());
        let args = self.arguments(&init).and_then(|args| self.skip(Tok::RParen).map(|()| args));
        let args = match args {
            Ok(args) => args,
            Err(Stop) => {
                self.add_text("While compiling function call:\n");
                return Err(Stop);
            }
        };
        self.note_use(name, None, type_symbol, UseKind::Read);
        self.skip(Tok::Semi)?;
        out.push(Stmt::New { at, object, args });
        Ok(())
    }
}
