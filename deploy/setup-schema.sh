#!/bin/sh
# Makes both databases of a Temporal server and brings their schemas to the version of this image.
# Runs in temporalio/admin-tools. Repeats safely: what exists is left, and only newer versions are applied,
# so an upgrade of the server is a new image tag and another `up`.
# The connection is in SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD.
set -eu

versions=${SCHEMA_DIR:-/etc/temporal/schema/postgresql/v12}

for pair in temporal:temporal temporal_visibility:visibility; do
  database=${pair%%:*}
  temporal-sql-tool --db "$database" create
  temporal-sql-tool --db "$database" setup-schema --version 0.0
  temporal-sql-tool --db "$database" update-schema --schema-dir "$versions/${pair#*:}/versioned"
done
echo "both schemas are up to date"
