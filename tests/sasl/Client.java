import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.Map;
import javax.security.auth.Subject;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.LoginContext;
import javax.security.sasl.RealmCallback;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;

/**
 * The JDK's SaslClient, made as ZooKeeper's client makes it, over standard input and output: a line with the server's
 * token in base64 comes in, a line with the client's goes out. An empty token is "-", "complete" ends it.
 *
 * Arguments: DIGEST-MD5 USER PASSWORD, or GSSAPI SERVICE HOST AUTHZID [MUTUAL], which logs in by the section Client of the
 * login configuration.
 */
public final class Client {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("DIGEST-MD5")) {
            talk(digest(args[1], args[2]), false);
            return;
        }
        LoginContext login = new LoginContext("Client");
        login.login();
        Map<String, String> props =
            args.length > 4 ? Map.of(Sasl.SERVER_AUTH, "true") : null;
        Subject.doAs(login.getSubject(), (java.security.PrivilegedExceptionAction<Void>) () -> {
            talk(Sasl.createSaslClient(new String[] {"GSSAPI"}, args[3], args[1], args[2], props, callbacks -> { }), true);
            return null;
        });
    }

    private static SaslClient digest(String user, String password) throws Exception {
        return Sasl.createSaslClient(new String[] {"DIGEST-MD5"}, user, "zookeeper", "zk-sasl-md5", null, callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback name) {
                    name.setName(user);
                } else if (callback instanceof PasswordCallback secret) {
                    secret.setPassword(password.toCharArray());
                } else if (callback instanceof RealmCallback realm) {
                    realm.setText(realm.getDefaultText());
                }
            }
        });
    }

    private static void talk(SaslClient client, boolean first) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        say(first ? client.evaluateChallenge(new byte[0]) : new byte[0]);
        while (!client.isComplete()) {
            String line = in.readLine();
            if (line == null) {
                return;
            }
            byte[] response = client.evaluateChallenge(Base64.getDecoder().decode(line.replace("-", "")));
            if (response != null) {
                say(response);
            }
        }
        System.out.println("complete");
    }

    private static void say(byte[] token) {
        System.out.println(token.length == 0 ? "-" : Base64.getEncoder().encodeToString(token));
        System.out.flush();
    }
}
