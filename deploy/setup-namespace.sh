#!/bin/sh
# Makes the namespace, and in it the search attributes that Mainspring's runs are found by.
# Runs in temporalio/admin-tools, and anywhere else that has the `temporal` command. Repeats safely.
# Where: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE (read by `temporal` itself). How long closed runs are kept: NAMESPACE_RETENTION.
set -eu

namespace=${TEMPORAL_NAMESPACE:-default}
attempts=${SETUP_ATTEMPTS:-60}
pause_seconds=${SETUP_PAUSE_SECONDS:-2}

# until_true WHAT COMMAND…: repeats the command until it succeeds; gives up after the bound and shows its last words.
until_true() {
  what=$1
  shift
  attempt=1
  until words=$("$@" 2>&1); do
    if [ "$attempt" -ge "$attempts" ]; then
      echo "gave up waiting for $what after $attempts attempts: $words" >&2
      exit 1
    fi
    attempt=$((attempt + 1))
    sleep "$pause_seconds"
  done
}

attribute() {
  if echo "$present" | grep -Eq "(^|[^A-Za-z])$1([^A-Za-z]|\$)"; then
    return
  fi
  temporal operator search-attribute create --namespace "$namespace" --name "$1" --type "$2"
}

until_true "the server" temporal operator cluster health

if ! temporal operator namespace describe --namespace "$namespace" >/dev/null 2>&1; then
  temporal operator namespace create --namespace "$namespace" --retention "${NAMESPACE_RETENTION:-30d}" \
    --description "Agent runs of Mainspring"
fi

# A server needs a moment before a new namespace is known everywhere.
until_true "namespace $namespace" temporal operator search-attribute list --namespace "$namespace"
present=$words

attribute MainspringAgent Keyword
attribute MainspringStatus Keyword
attribute MainspringOutcome Keyword
attribute MainspringAwaiting Keyword
attribute MainspringTurns Int
attribute MainspringTokens Int

# Servers cache the list for up to a minute; a run that wrote an attribute before then would be held up.
until_true "the search attributes" temporal workflow count --namespace "$namespace" \
  --query "MainspringAgent = 'none' AND MainspringStatus = 'none' AND MainspringOutcome = 'none' AND MainspringAwaiting = 'none' AND MainspringTurns = 0 AND MainspringTokens = 0"
echo "namespace $namespace is ready"
