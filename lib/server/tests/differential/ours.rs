//! This database without sockets: a session and two replicas. One replica gets the operations in encoded form.

use archipelago_server::args::Args;
use archipelago_server::db::{Db, Outcome};
use archipelago_server::operation::Write;
use archipelago_server::reply::{Protocol, Reply};
use archipelago_server::session::{Moment, Session, Step};

use crate::judge;
use crate::theirs::{self, Answer};

#[derive(Default)]
pub struct Ours {
    db: Db,
    replica: Db,
    session: Session,
    asked: u64,
}

impl Ours {
    /// Begins with these databases.
    pub fn of(db: Db) -> Self {
        Self { replica: db.clone(), db, ..Self::default() }
    }

    /// Returns the databases.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns an answer that [`equal`](judge::equal) compares. It is the answer to the command itself, except after a scan.
    pub fn whole(&mut self, command: &[Vec<u8>], now: u64) -> Answer {
        let answer = self.ask(command, now);
        // Nothing changes meanwhile, so each element is returned once. (Redis returns it at least once.)
        judge::whole(command, answer, true, |command| self.ask(command, now))
    }

    pub fn ask(&mut self, command: &[Vec<u8>], now: u64) -> Answer {
        self.asked += 1;
        let args: Args = command.iter().collect();
        let moment = Moment { now, seed: self.asked.wrapping_mul(0x9e37_79b9_7f4a_7c15), wishes: 0 };
        let reply = match self.session.accept(args, moment) {
            Step::Reply(reply) | Step::Close(reply) => reply,
            Step::Read(read) => {
                let (one, other) = (self.db.read(&read), self.replica.read(&read));
                assert!(is_same(&one, &other), "replicas differ: {command:?}");
                one.reply
            }
            Step::Write(write) => {
                let mut bytes = Vec::new();
                write.encode(&mut bytes);
                let decoded = Write::decode(&bytes).expect("what was encoded is decoded");
                let mut outcome = self.db.write(&write);
                let other = self.replica.write(&decoded);
                assert!(is_same(&outcome, &other), "replicas differ: {command:?}");
                self.session.answer(&write, &mut outcome)
            }
            Step::Server(command, _) => Reply::Status(command.name),
        };
        if self.asked.is_multiple_of(256) {
            assert_eq!(self.db.digest(), self.replica.digest(), "replicas differ");
        }
        theirs::parse(&mut &*encoded(&reply)).expect("an answer is well-formed")
    }
}

fn encoded(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(Protocol::Resp2, &mut out);
    out
}

/// Compares the bytes of answers, because a NaN does not equal itself. Answers may have hundreds of megabytes.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    encoded(&one.reply) == encoded(&other.reply) && one.effects == other.effects
}
