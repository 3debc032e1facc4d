//! Hash fields that expire: a table of requests, answers and events after Redis 7.4 and 8.0, whose commands the installed
//! redis-server may not have; a model; and loads that would make clients wait.

mod hostile;
mod model;
mod ours;
mod table;
