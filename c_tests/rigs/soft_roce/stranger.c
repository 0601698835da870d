// Connects to a UCX listener without having been asked to, says something, and wants to be shown the door.
//   stranger ADDRESS PORT [AM-ID]     0: was refused or cut off; 1: is still connected after 8 seconds
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum { FIVE_SECONDS_AND_SOME = 8 };

static volatile int failed;
static ucs_status_t reason;

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status) {
  (void)arg;
  (void)ep;
  reason = status;
  failed = 1;
}

static int check(ucs_status_t status, const char *what) {
  if (status == UCS_OK) return 0;
  fprintf(stderr, "stranger: %s: %s\n", what, ucs_status_string(status));
  return 2;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_RMA};
  ucp_worker_params_t worker_params = {.field_mask = 0};
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  ucp_context_h context = NULL;
  ucp_worker_h worker = NULL;
  ucp_ep_h ep = NULL;
  if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || check(ucp_init(&params, NULL, &context), "init") != 0 ||
      check(ucp_worker_create(context, &worker_params, &worker), "worker") != 0)
    return 2;
  ucp_ep_params_t ep_params = {
      .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_error, .arg = NULL},
      .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
      .sockaddr = {.addr = (struct sockaddr *)&to, .addrlen = sizeof to},
  };
  if (check(ucp_ep_create(worker, &ep_params, &ep), "endpoint") != 0) return 2;
  // Something that looks like a message of an established session: whatever it names is none of the sender's.
  static char header[64], body[4096];
  memset(header, 0x5a, sizeof header);
  memset(body, 0xa5, sizeof body);
  const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
  const unsigned first = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
  for (unsigned id = first; id < first + 8; ++id) {
    void *request = ucp_am_send_nbx(ep, id, header, sizeof header, body, sizeof body, &how);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  const time_t end = time(NULL) + FIVE_SECONDS_AND_SOME;
  while (!failed && time(NULL) < end) ucp_worker_progress(worker);
  if (!failed) {
    printf("still connected\n");
    return 1;
  }
  printf("refused: %s\n", ucs_status_string(reason));
  return 0;
}
