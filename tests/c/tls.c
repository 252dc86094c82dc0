/* Who comes in by which certificate, and who does not. The server of the fixture asks for none, so all other
 * tests run without; the one here demands them. The files lie where the program runs. */

#include "tls.h"

#ifdef HAVE_OPENSSL_H

#include <stdlib.h>

/* Whom a client trusts, what it shows, and a password, which the library wants even where there is none. */
#define NOTHING "authority.pem"
#define CLIENT "authority.pem,client.pem,client-key.pem,none"
#define STRANGER "authority.pem,other/client.pem,other/client-key.pem,none"
#define MISTRUST "other/authority.pem,client.pem,client-key.pem,none"

/* Long enough for several attempts: one that succeeds takes some milliseconds. */
enum { REFUSED_MS = 2500 };

static struct server demanding;

static const struct server *demanding_server(void) {
    if (demanding.command == NULL)
        server_create(&demanding, "DEMANDING_SERVER_COMMAND");
    return &demanding;
}

void tls_end(void) {
    if (demanding.command != NULL)
        server_destroy(&demanding);
}

static bool comes_in(struct session *session, const struct server *server, const char *shown) {
    session_begin_tls(session, server, shown);
    return await_state(&session->events, ZOO_CONNECTED_STATE);
}

static int make(zhandle_t *zk, const char *path, const struct ACL_vector *acl, int mode) {
    return zoo_create(zk, path, "one", 3, acl, mode, NULL, 0);
}

/* What a session is used for: create, get, set, multi, and a watch. */
static void use(struct session *session, const char *path, const char *ephemeral) {
    struct events seen = EVENTS_EMPTY;
    char data[8];
    int length = sizeof data;
    struct Stat stat;
    zoo_op_t ops[2];
    zoo_op_result_t results[2];
    zhandle_t *zk = session->handle;
    CHECK_RC(ZOK, make(zk, path, &ZOO_OPEN_ACL_UNSAFE, 0));
    CHECK_RC(ZOK, zoo_wget(zk, path, note_event, &seen, data, &length, NULL));
    CHECK(length == 3 && memcmp(data, "one", 3) == 0);
    CHECK_RC(ZOK, zoo_set(zk, path, "two", 3, 0));
    CHECK(await_event(&seen, 0, ZOO_CHANGED_EVENT, path));
    zoo_set_op_init(&ops[0], path, "three", 5, 1, &stat);
    zoo_create_op_init(&ops[1], ephemeral, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0);
    CHECK_RC(ZOK, zoo_multi(zk, 2, ops, results));
    CHECK(stat.version == 2 && stat.dataLength == 5);
    CHECK_RC(ZOK, zoo_exists(zk, ephemeral, 0, &stat));
}

static void use_and_close(const struct server *server, const char *base) {
    char path[PATH_SIZE], ephemeral[PATH_SIZE];
    struct session session, other;
    snprintf(path, sizeof path, "%s-used", base);
    snprintf(ephemeral, sizeof ephemeral, "%s-ephemeral", base);
    bool came = comes_in(&session, server, CLIENT);
    if (came)
        use(&session, path, ephemeral);
    int closed = zookeeper_close(session.handle);
    CHECK(came);
    CHECK_RC(ZOK, closed);
    came = comes_in(&other, server, CLIENT);
    int kept = came ? zoo_exists(other.handle, path, 0, NULL) : ZCONNECTIONLOSS;
    int left = came ? zoo_exists(other.handle, ephemeral, 0, NULL) : ZCONNECTIONLOSS;
    session_close(&other);
    CHECK_RC(ZOK, kept);
    CHECK_RC(ZNONODE, left);
}

void certificate_is_not_asked_for(struct fixture *f) {
    use_and_close(f->server, f->base);
}

void certificate_opens(struct fixture *f) {
    use_and_close(demanding_server(), f->base);
}

static void only_its_owner_may(zhandle_t *zk, const char *path) {
    struct ACL_vector acl;
    struct Stat stat;
    CHECK_RC(ZOK, make(zk, path, &ZOO_CREATOR_ALL_ACL, 0));
    CHECK_RC(ZOK, zoo_get_acl(zk, path, &acl, &stat));
    bool own = acl.count == 1 && strcmp(acl.data[0].id.scheme, "x509") == 0 &&
               strcmp(acl.data[0].id.id, "CN=client") == 0;
    deallocate_ACL_vector(&acl);
    CHECK(own);
    CHECK_RC(ZOK, zoo_set(zk, path, "x", 1, 0));
}

void certificate_is_an_identity(struct fixture *f) {
    struct session session;
    bool came = comes_in(&session, demanding_server(), CLIENT);
    if (came)
        only_its_owner_may(session.handle, f->base);
    session_close(&session);
    CHECK(came);
    /* One that shows nothing has none. */
    CHECK_RC(ZINVALIDACL, make(f->zk, "/nobody", &ZOO_CREATOR_ALL_ACL, 0));
}

/* Whether a client does not come in, and its library says why. */
static bool is_refused(const struct server *server, const char *shown, const char *why) {
    struct session session;
    char *said = NULL;
    size_t size = 0;
    FILE *log = open_memstream(&said, &size);
    if (log == NULL)
        return false;
    zoo_set_log_stream(log);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    session_begin_tls(&session, server, shown);
    pause_ms(REFUSED_MS);
    bool outside = zoo_state(session.handle) != ZOO_CONNECTED_STATE &&
                   zoo_client_id(session.handle)->client_id == 0;
    session_close(&session);
    zoo_set_debug_level(0);
    zoo_set_log_stream(NULL);
    fclose(log);
    bool named = strstr(said, why) != NULL;
    if (outside && !named)
        printf("#   it does not come in, but the reason is another one: %s\n", said);
    free(said);
    return outside && named;
}

/* The same server lets a good client in, so the refusal was for what the other one showed. */
static void refused_beside_a_good_one(const char *shown, const char *why) {
    const struct server *server = demanding_server();
    struct session session;
    CHECK(is_refused(server, shown, why));
    bool came = comes_in(&session, server, CLIENT);
    session_close(&session);
    CHECK(came);
}

void server_of_another_authority_is_refused(struct fixture *f) {
    (void)f;
    refused_beside_a_good_one(MISTRUST, "error in ssl connect");
}

/* With TLS 1.3 a client learns of it after the handshake, when it reads. */
void client_without_a_certificate_is_refused(struct fixture *f) {
    (void)f;
    refused_beside_a_good_one(NOTHING, "failed while receiving a server response");
}

void client_of_another_authority_is_refused(struct fixture *f) {
    (void)f;
    refused_beside_a_good_one(STRANGER, "failed while receiving a server response");
}

#endif
