package io.stoa.tests;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A connection that says exactly what it is told to say: no pings, no reconnecting. */
final class RawConnection implements AutoCloseable {
    private static final int CREATE = 1;
    private static final int GET_DATA = 4;
    private static final int EPHEMERAL = 1;
    private static final int PERMISSIONS_ALL = 31;

    private final Socket socket = new Socket();
    private final DataInputStream in;
    private final DataOutputStream out;

    RawConnection(ServerProcess server) throws IOException {
        String[] address = server.address().split(":");
        socket.connect(new InetSocketAddress(address[0], Integer.parseInt(address[1])), 2000);
        socket.setSoTimeout(10_000);
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
    }

    /** What the server granted; a session that is gone has the number 0 and the timeout 0. */
    record Session(long id, int timeoutMs, byte[] password) {
        static Session fresh(int timeoutMs) {
            return new Session(0, timeoutMs, new byte[16]);
        }
    }

    Session greet(Session wanted) throws IOException {
        sendGreeting(wanted, 0, true);
        ByteBuffer reply = receive();
        reply.getInt();
        int timeout = reply.getInt();
        long id = reply.getLong();
        byte[] password = new byte[reply.getInt()];
        reply.get(password);
        return new Session(id, timeout, password);
    }

    /** Clients older than 3.4 leave out the last byte, which asks for read-only servers. */
    void sendGreeting(Session wanted, long zxidSeen, boolean withReadOnly) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        DataOutputStream fields = new DataOutputStream(body);
        fields.writeInt(0);
        fields.writeLong(zxidSeen);
        fields.writeInt(wanted.timeoutMs());
        fields.writeLong(wanted.id());
        fields.writeInt(wanted.password().length);
        fields.write(wanted.password());
        if (withReadOnly) {
            fields.writeBoolean(false);
        }
        send(body.toByteArray());
    }

    /** Asks for data, and leaves the answer to whoever reads. */
    void sendGetData(int xid, String path) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        DataOutputStream fields = new DataOutputStream(body);
        fields.writeInt(xid);
        fields.writeInt(GET_DATA);
        text(fields, path);
        fields.writeBoolean(false);
        send(body.toByteArray());
    }

    /** Creates an ephemeral znode that is open to all, and returns the error code. */
    int createEphemeral(String path) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        DataOutputStream fields = new DataOutputStream(body);
        fields.writeInt(1);
        fields.writeInt(CREATE);
        text(fields, path);
        fields.writeInt(0);
        fields.writeInt(1);
        fields.writeInt(PERMISSIONS_ALL);
        text(fields, "world");
        text(fields, "anyone");
        fields.writeInt(EPHEMERAL);
        send(body.toByteArray());
        return receive().getInt(12);
    }

    void send(byte[] body) throws IOException {
        out.writeInt(body.length);
        out.write(body);
        out.flush();
    }

    ByteBuffer receive() throws IOException {
        return ByteBuffer.wrap(in.readNBytes(in.readInt()));
    }

    /** Whether the server has closed the connection, after reading what it still said. */
    boolean ends() {
        try {
            in.readAllBytes();
            return true;
        } catch (java.net.SocketTimeoutException e) {
            return false;
        } catch (IOException e) {
            return true;
        }
    }

    DataOutputStream out() {
        return out;
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }

    private static void text(DataOutputStream fields, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        fields.writeInt(bytes.length);
        fields.write(bytes);
    }
}
