//! Reads: answered from the applied state, into the connection's output, without a copy between.

use crate::replica::Replica;
use crate::replica::apply::notify;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_front::{Connection, ConnectionId};
use stoa_partition::{Partition, is_of_programs};
use stoa_placement::Placement;
use stoa_tree::{Caller, PROGRAMS, WatchMode, WatcherId, Znode};
use stoa_wire::{
    Acl, AddWatchMode, ErrorCode, EventKind, MultiOps, MultiResults, Opcode, Reader, ReplyHeader, Request,
    RequestHeader, SetWatches, Stat, WatcherKind, begin_frame, end_frame, perms, put,
};

/// zxid in the events that setWatches replays: ZooKeeper does not know it there either.
const ZXID_UNKNOWN: i64 = -1;

/// A reply may not grow beyond this: a multiRead can name the same large znode many times. What one request could
/// write can be read in any case.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// So much longer than the request that wrote them is the reply with the data, at most.
const STAT_BYTES_MAX: usize = 128;

impl Replica {
    /// Answers a read. `arrived_us` is given for one that had to wait; otherwise its latency is
    /// known at the end of the turn.
    pub(crate) fn read(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        opcode: Opcode,
        reader: &mut Reader<'_>,
        arrived_us: Option<u64>,
    ) {
        let request = match Request::decode(opcode, reader) {
            Ok(request) => request,
            Err(_) => {
                let arrived_us = arrived_us.unwrap_or(self.now.mono_us);
                self.reply(id, header.xid, opcode, ErrorCode::MarshallingError as i32, &[], arrived_us);
                return;
            }
        };
        if let Request::SetWatches(watches) | Request::SetWatches2(watches) = request {
            self.set_watches(id, &watches);
        }
        let zxid = self.applied.partition.tree().last_zxid();
        // The output is taken out while the reply is written into it, so that the rest of the
        // connection can be read meanwhile.
        let Some(output) = self.clients.connections.output(id) else { return };
        let mut output = core::mem::take(output);
        let start = begin_frame(&mut output);
        ReplyHeader { xid: header.xid, zxid, err: 0 }.encode(&mut output);
        let body = output.len();
        let Some(connection) = self.clients.connections.get(id) else { return };
        let place = (&self.applied.placement, self.config.partition);
        let bytes_max = REPLY_BYTES_MAX.max(self.config.limits.frame_bytes + STAT_BYTES_MAX);
        let read = Read { partition: &mut self.applied.partition, connection, id, place, bytes_max };
        let mut result = read.answer(&request, &mut output);
        if output.len() - start > bytes_max {
            result = Err(ErrorCode::MarshallingError);
        }
        if let Err(code) = result {
            output.truncate(body);
            output[body - 4..].copy_from_slice(&(code as i32).to_be_bytes());
            self.stats.error(opcode);
        }
        end_frame(&mut output, start);
        let bytes = output.len() - start;
        self.stats.sent(bytes);
        self.finish_read(id, output, opcode, zxid, arrived_us);
    }

    fn finish_read(
        &mut self,
        id: ConnectionId,
        output: Vec<u8>,
        opcode: Opcode,
        zxid: i64,
        arrived_us: Option<u64>,
    ) {
        let now_us = self.now.mono_us;
        let waited_us = arrived_us.map(|arrived| now_us.saturating_sub(arrived));
        let limit = self.config.limits.output_close_bytes;
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        connection.set_output(output);
        let (too_much, is_held) = (connection.output_bytes() > limit, connection.is_held());
        if is_held {
            self.clients.connections.note_held(id, opcode, arrived_us.unwrap_or(now_us), zxid);
        } else {
            connection.answered(zxid, waited_us.unwrap_or(0), now_us);
            match waited_us {
                Some(us) => self.stats.latency(opcode, us, 1),
                None => self.clients.turn.answered(opcode),
            }
        }
        if too_much {
            self.check_output(id);
        }
    }

    /// Sets watches again; what happened since `relative_zxid` is reported at once, before the reply.
    fn set_watches(&mut self, id: ConnectionId, request: &SetWatches<'_>) {
        let (placement, own) = (self.applied.placement.clone(), self.config.partition);
        let is_here = |path: &&str| placement.of(path) == own;
        let connection = self.clients.connections.get(id);
        let session = connection.map_or(0, |connection| connection.session);
        let told = request.relative_zxid;
        let has_come = connection.is_some_and(|it| it.mode.has_come || it.mode.came_zxid >= told.max(1));
        let (tree, watches, extensions) = self.applied.partition.parts_mut();
        let watcher = WatcherId(id.0);
        // What it was told elsewhere does not say what it has seen of here: it is told of everything, and reads again. It
        // may have come with a connection before this one, and have heard nothing on that.
        let since = if has_come || tree.was_told_elsewhere(session, told) { 0 } else { told };
        let mut missed = |kind: EventKind, path: &str| {
            notify(&mut self.clients.connections, &mut self.stats, id, ZXID_UNKNOWN, kind, path);
        };
        for path in request.data.iter().filter(is_here) {
            match tree.data_changed_after(path, since) {
                None => missed(EventKind::Deleted, path),
                Some(true) => missed(EventKind::DataChanged, path),
                Some(false) => {
                    watches.add(path, watcher, WatchMode::Data);
                }
            }
        }
        for path in request.exist.iter().filter(is_here) {
            // Who waits by way of a program is not waiting any more: it has to ask the program again.
            if extensions.blocks(session, path) || tree.get(path).is_some() {
                missed(EventKind::Created, path);
            } else {
                watches.add(path, watcher, WatchMode::Data);
            }
        }
        for path in request.child.iter().filter(is_here) {
            match tree.children_changed_after(path, since) {
                None => missed(EventKind::Deleted, path),
                Some(true) => missed(EventKind::ChildrenChanged, path),
                Some(false) => {
                    watches.add(path, watcher, WatchMode::Child);
                }
            }
        }
        for path in request.persistent.iter().filter(is_here) {
            watches.add(path, watcher, WatchMode::Persistent);
        }
        for path in request.persistent_recursive.iter().filter(|path| placement.is_on(path, own)) {
            watches.add(path, watcher, WatchMode::PersistentRecursive);
        }
    }
}

type Answer = Result<(), ErrorCode>;

/// One read, with what it needs.
struct Read<'a> {
    partition: &'a mut Partition,
    connection: &'a Connection,
    id: ConnectionId,
    /// What lives where, and which partition this is.
    place: (&'a Placement, u8),
    /// The longest reply.
    bytes_max: usize,
}

impl Read<'_> {
    #[inline]
    fn answer(mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        match *request {
            Request::GetData { path, watch } => self.get_data(path, watch, out, false),
            Request::Exists { path, watch } => self.exists(path, watch, out),
            Request::GetChildren { path, watch } => self.get_children(path, watch, out, false),
            Request::GetChildren2 { path, watch } => {
                self.get_children(path, watch, out, false)?;
                let znode = self.partition.tree().get(path).ok_or(ErrorCode::NoNode)?;
                znode.stat().encode(out);
                Ok(())
            }
            Request::GetAcl { path } => self.get_acl(path, out),
            Request::MultiRead(ops) => self.multi_read(&ops, out),
            Request::CheckWatches { path, kind } => {
                let kind = WatcherKind::from_i32(kind).ok_or(ErrorCode::MarshallingError)?;
                let found = self.partition.watches().contains(WatcherId(self.id.0), path, kind);
                if found { Ok(()) } else { Err(ErrorCode::NoWatcher) }
            }
            Request::RemoveWatches { path, kind } => {
                let kind = WatcherKind::from_i32(kind).ok_or(ErrorCode::MarshallingError)?;
                let removed = self.partition.watches_mut().remove(WatcherId(self.id.0), path, kind);
                if removed { Ok(()) } else { Err(ErrorCode::NoWatcher) }
            }
            Request::AddWatch { path, mode } => {
                let mode = match AddWatchMode::from_i32(mode).ok_or(ErrorCode::MarshallingError)? {
                    AddWatchMode::Persistent => WatchMode::Persistent,
                    AddWatchMode::PersistentRecursive => WatchMode::PersistentRecursive,
                };
                self.watch(path, mode);
                put::i32(out, 0);
                Ok(())
            }
            Request::GetEphemerals { prefix } => {
                self.get_ephemerals(prefix, out);
                Ok(())
            }
            Request::GetAllChildrenNumber { path } => {
                // Each partition counts what it has below it.
                let (placement, own) = self.place;
                if placement.of(path) == own {
                    self.readable(path)?;
                }
                let tree = self.partition.tree();
                let hidden = match path {
                    "/" if placement.of(PROGRAMS) != own => tree.count_below(PROGRAMS).unwrap_or(0),
                    _ => 0,
                };
                put::len(out, tree.count_below(path).unwrap_or(0) - hidden);
                Ok(())
            }
            Request::WhoAmI => {
                self.who_am_i(out);
                Ok(())
            }
            Request::SetWatches(_) | Request::SetWatches2(_) => Ok(()),
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    #[inline]
    fn caller(&self) -> Caller<'_> {
        Caller { session: self.connection.session, identities: &self.connection.identities }
    }

    /// The znode, if it is there and the caller may read it.
    #[inline]
    fn readable(&self, path: &str) -> Result<Znode<'_>, ErrorCode> {
        let tree = self.partition.tree();
        let znode = tree.get(path).ok_or(ErrorCode::NoNode)?;
        if tree.permits(znode, perms::READ, &self.caller()) { Ok(znode) } else { Err(ErrorCode::NoAuth) }
    }

    fn watch(&mut self, path: &str, mode: WatchMode) {
        self.partition.watches_mut().add(path, WatcherId(self.id.0), mode);
    }

    #[inline]
    fn get_data(&mut self, path: &str, watch: bool, out: &mut Vec<u8>, in_multi: bool) -> Answer {
        let znode = match self.readable(path) {
            Err(ErrorCode::NoNode) => return self.failure(path, out, in_multi),
            readable => readable?,
        };
        let stat = znode.stat();
        if in_multi {
            MultiResults::data(out, znode.data(), &stat);
        } else {
            put::opt_buffer(out, znode.data());
            stat.encode(out);
        }
        if watch {
            self.watch(path, WatchMode::Data);
        }
        Ok(())
    }

    /// Why the last call of a program has failed, if that is what is asked for: it is no znode.
    #[cold]
    fn failure(&self, path: &str, out: &mut Vec<u8>, in_multi: bool) -> Answer {
        let text = self.connection.failure_at(path).ok_or(ErrorCode::NoNode)?;
        let data_length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        let stat = Stat { data_length, ..Stat::default() };
        if in_multi {
            MultiResults::data(out, Some(text.as_bytes()), &stat);
        } else {
            put::buffer(out, text.as_bytes());
            stat.encode(out);
        }
        Ok(())
    }

    fn exists(&mut self, path: &str, watch: bool, out: &mut Vec<u8>) -> Answer {
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let found = match self.readable(path) {
            Ok(znode) => {
                znode.stat().encode(out);
                Ok(())
            }
            Err(code) => Err(code),
        };
        // A znode that is not there can be waited for.
        if watch && found != Err(ErrorCode::NoAuth) {
            self.watch(path, WatchMode::Data);
        }
        found
    }

    fn get_children(&mut self, path: &str, watch: bool, out: &mut Vec<u8>, in_multi: bool) -> Answer {
        let znode = self.readable(path)?;
        if in_multi {
            MultiResults::children(out);
        }
        put::len(out, znode.child_count());
        for name in znode.children() {
            put::str(out, name);
        }
        if watch {
            self.watch(path, WatchMode::Child);
        }
        Ok(())
    }

    /// The operations' own `watch` fields are not looked at: a multiRead sets no watches.
    fn multi_read(&mut self, ops: &MultiOps<'_>, out: &mut Vec<u8>) -> Answer {
        let start = out.len();
        for op in ops.iter() {
            let result = match op {
                Request::GetData { path, .. } => self.get_data(path, false, out, true),
                Request::GetChildren { path, .. } => self.get_children(path, false, out, true),
                _ => return Err(ErrorCode::MarshallingError),
            };
            if let Err(code) = result {
                MultiResults::error(out, code as i32);
            }
            if out.len() - start > self.bytes_max {
                return Err(ErrorCode::MarshallingError);
            }
        }
        MultiResults::end(out);
        Ok(())
    }

    /// Whoever may not administrate the znode sees digests as `user:x`.
    fn get_acl(&self, path: &str, out: &mut Vec<u8>) -> Answer {
        let tree = self.partition.tree();
        let znode = tree.get(path).ok_or(ErrorCode::NoNode)?;
        if !tree.permits(znode, perms::READ | perms::ADMIN, &self.caller()) {
            return Err(ErrorCode::NoAuth);
        }
        let administrates = tree.permits(znode, perms::ADMIN, &self.caller());
        let acl = znode.acl().list();
        put::len(out, acl.len());
        let mut masked = String::new();
        for entry in acl.iter() {
            let mut id = entry.id;
            if !administrates
                && entry.scheme == "digest"
                && let Some((user, _)) = id.split_once(':')
            {
                masked.clear();
                masked.push_str(user);
                masked.push_str(":x");
                id = &masked;
            }
            Acl { id, ..entry }.encode(out);
        }
        znode.stat().encode(out);
        Ok(())
    }

    fn get_ephemerals(&self, prefix: Option<&str>, out: &mut Vec<u8>) {
        let prefix = prefix.filter(|prefix| !matches!(prefix.trim(), "" | "/")).unwrap_or_default();
        let start = out.len();
        put::len(out, 0);
        let mut count = 0_i32;
        let (placement, own) = self.place;
        for path in self.partition.tree().ephemerals_of(self.connection.session) {
            // Of acknowledgements every partition knows.
            let is_seen = !is_of_programs(&path) || placement.of(&path) == own;
            if is_seen && path.starts_with(prefix) {
                put::str(out, &path);
                count += 1;
            }
        }
        out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    }

    fn who_am_i(&self, out: &mut Vec<u8>) {
        put::len(out, self.connection.identities.len());
        for identity in &self.connection.identities {
            let user = match identity.scheme.as_str() {
                "digest" => identity.id.split(':').next().unwrap_or_default(),
                _ => &identity.id,
            };
            put::str(out, &identity.scheme);
            put::str(out, user);
        }
    }
}
