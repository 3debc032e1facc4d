//! Read-copy-update: the memory reclamation of all structures of the workspace.
//!
//! A structure owns a [`Domain`]. A reader enters a critical section and holds a [`Guard`]; a writer that unlinks a node
//! *retires* it, and the domain reclaims it once every guard that might have seen it is gone. Domains share nothing.
//!
//! Epoch-based reclamation after Fraser (2004), shaped for many cores:
//!
//! - One record per thread slot, in memory of its thread: entering and leaving are one store each, and what enters (a
//!   [`Reader`], a structure's session) is a pair of references that costs nothing to make, to keep or to forget.
//! - Each thread bags its own garbage and reclaims it itself, so freed memory goes back where it came from. Bags lie
//!   behind a small lock that the owner takes uncontended; it is there so that any thread may take what a finished or idle
//!   thread left behind.
//! - No thread of its own: retiring drives the epoch, at most one barrier per bag. For structures that come to rest, and
//!   have no thread either, the process has one that reclaims what they leave: see `rest`.
//! - Two flavours of barrier, see [`Flavour`]; and a third flavour of reading on either, see [`QuiescentReader`].
//! - A reader that does not leave stops reclamation. That is never silent: see [`Stats`] and
//!   [`Domain::with_backlog_limit`].
//!
//! # Usage
//! The example is at [`Domain`]. A thread that uses a structure often keeps a [`Reader`]; [`Domain::pin`] does without.
//! What RCU gives is memory: that a node is not freed while a guard may lead to it. Which version of the structure a
//! reader sees, and what writers must not do at once, is the structure's affair: release stores, acquire loads, a lock
//! for writers.
//!
//! # When not to use it
//! - Readers that stay: nothing retired meanwhile is freed. [`Domain::with_backlog_limit`] tells of it, and nothing bounds it.
//! - Objects with one owner at a time: `Arc` frees at once.
//! - A writer that must wait for readers often ([`Domain::synchronize`] takes microseconds at least): retire instead.
//!
//! # Why nothing is reclaimed too early
//!
//! *Enter* by R: read the global epoch r (Acquire), publish (r, active) in the record (Release store), barrier B_R, then
//! read the structure. *Leave*: Release store of "inactive". *Retire* by T, inside a guard and after the unlink; when a
//! bag is full T *seals* it with e, the global epoch read inside that guard. *Advance* by A from g to g+1: read g
//! (Acquire), barrier B_A, Acquire loads of all records; if each is inactive or active at g, compare-and-exchange g to
//! g+1 (Release). *Reclaim* what was sealed with e after an Acquire load of the epoch that returned at least e+3.
//!
//! B_R and B_A are such that of any two one comes first, and then what precedes it is seen by what follows the other
//! (both `SeqCst` fences; or light and heavy membarrier: two B_R order nothing, and nothing below needs that).
//!
//! 1. *A successful advance from e+1 comes after T's leave.* If B_A came before B_T, then T, which read e after B_T,
//!    would have read e+1 at least. So B_T came first and A saw T's publication or something newer. T published at most e,
//!    so, not being refused, A saw T's leave or a newer store of that record: T's leave happens before the epoch
//!    becomes e+2. (Every store to a record is a Release, so a newer one carries the leave with it.)
//! 2. *Who published r ≥ e+2 does not see the object*: its Acquire load of r read the epoch from 1 or from a later
//!    advance, each of which read its predecessor with Acquire; so the unlink, which happens before T's leave, happens
//!    before its reads.
//! 3. *A successful advance from e+2 comes after the leave of every R that saw the object.* By 2, r ≤ e+1. If B_A came
//!    before B_R, then the unlink (before T's leave, before A's read of e+2, before B_A) would be seen by R. So B_R
//!    came first, A saw R's publication or something newer, and, not being refused, R's leave or newer: R's leave
//!    happens before the epoch becomes e+3, hence before the reclaim. ∎
//!
//! Sealing needs no barrier for this; the price is one epoch more than in schemes whose retirers fence.
//!
//! A record made after A walked the table is like one whose publication A did not see: R's creation of it precedes B_R.
//! A thread slot passes from a finished thread to a new one with happens-before, and so does the claim to a quiescent
//! reader's record, so a record has one owner at a time. Code that runs after its thread gave the slot back notices
//! ([`Reader::is_mine`]) and enters by the record of whatever slot the thread has then. A guard forgotten by the slot's
//! former owner stays counted and pins the epoch, which delays reclamation and nothing else.

mod backlog;
mod domain;
mod garbage;
mod held;
mod owned;
mod quiescent;
mod reader;
mod record;
mod records;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
mod turn;

debug_by_name! { Guard OwnedGuard QuiescentReader Reader }

pub use domain::{Domain, Flavour, Stats};
pub use held::{Held, Keeper};
pub use owned::OwnedGuard;
pub use quiescent::QuiescentReader;
pub use reader::{Guard, Reader};
#[cfg(not(loom))]
pub use rest::Owner;
