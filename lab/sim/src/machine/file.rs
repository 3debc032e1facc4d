//! Writes a machine as the text of a TOML file.

use super::{Cache, Machine};

impl Machine {
    /// Returns the text of a TOML file that [`from_toml`](Self::from_toml) reads as this machine.
    pub fn to_toml(&self) -> String {
        let cache = |cache: Cache| format!("{{ sets = {}, ways = {} }}", cache.sets, cache.ways);
        let (caches, latency, occupancy, os) = (&self.caches, &self.latency, &self.occupancy, &self.os);
        let mut text = format!(
            "name = {:?}\nsockets = {}\ncores_per_socket = {}\nthreads_per_core = {}\nhops = {:?}\nsmt_slowdown = {:?}\noverlap = {:?}\n",
            self.name,
            self.sockets,
            self.cores_per_socket,
            self.threads_per_core,
            self.hops,
            self.smt_slowdown,
            self.overlap
        );
        text += &format!(
            "\n[caches]\nl1 = {}\nl2 = {}\nl3 = {}\nl3_inclusive = {}\n",
            cache(caches.l1),
            cache(caches.l2),
            cache(caches.l3),
            caches.l3_inclusive
        );
        text += &format!(
            "\n[latency]\nl1 = {:?}\nl2 = {:?}\nl3 = {:?}\ncore_to_core = {:?}\ndirty_remote = {:?}\nclean_remote = {:?}\n\
             memory = {:?}\nlocked = {:?}\nfence = {:?}\npause = {:?}\nclock = {:?}\n",
            latency.l1,
            latency.l2,
            latency.l3,
            latency.core_to_core,
            latency.dirty_remote,
            latency.clean_remote,
            latency.memory,
            latency.locked,
            latency.fence,
            latency.pause,
            latency.clock
        );
        text += &format!(
            "\n[occupancy]\ntransfer = {:?}\nhold = {:?}\nshared_read = {:?}\nmemory = {:?}\nlink = {:?}\n\
             local_bypass = {}\nmiss_buffers = {}\n",
            occupancy.transfer,
            occupancy.hold,
            occupancy.shared_read,
            occupancy.memory,
            occupancy.link,
            occupancy.local_bypass,
            occupancy.miss_buffers
        );
        if let Some(tx) = &self.transactions {
            text += &format!(
                "\n[transactions]\nbegin = {:?}\ncommit = {:?}\nabort = {:?}\nread_lines = {}\ntimer = {:?}\n\
                 spurious = {:?}\n",
                tx.begin, tx.commit, tx.abort, tx.read_lines, tx.timer, tx.spurious
            );
        }
        text += &format!("\n[os]\ncall = {:?}\nwake = {:?}\n\n[sources]\n", os.call, os.wake);
        text + &self.sources.iter().map(|(field, source)| format!("{field:?} = {source:?}\n")).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_files() {
        for name in crate::machine::PRESETS {
            let preset = Machine::preset(name).unwrap();
            assert_eq!(Machine::from_toml(&preset.to_toml()).unwrap(), preset);
        }
    }
}
