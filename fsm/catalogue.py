"""The actions a contract may call by name alone, and the intents that have an effect."""

from collections.abc import Mapping
from types import MappingProxyType

from fsm.contract import Action, CountMetric, EmitIntent, Level, Validate, WriteLog

KNOWN_INTENTS = frozenset(
    {
        "postgres.upsert_registration",
        "postgres.delete_registration",
        "consul.register",
        "consul.deregister",
        "consul.activate",
        "http.request",
    }
)

_TRACE = (
    ("node_id", "node_id"),
    ("registration_id", "registration_id"),
    ("correlation_id", "correlation_id"),
    ("generation", "generation"),
)
_WHERE = (
    ("deployment_id", "deployment_id"),
    ("environment", "environment"),
    ("network_id", "network_id"),
)


def _metric(name: str, metric: str, trigger: str) -> CountMetric:
    return CountMetric(name, metric, triggers=frozenset({trigger}))


NAMED_ACTIONS: Mapping[str, tuple[Action, ...]] = MappingProxyType(
    {
        "validate_payload": (
            WriteLog("validate_payload", Level.INFO, "Validating the registration payload"),
            Validate("validate_payload", "VALIDATION_PASSED", "VALIDATION_FAILED"),
        ),
        "emit_postgres_upsert_intent": (
            EmitIntent(
                "emit_postgres_upsert_intent",
                "postgres.upsert_registration",
                payload=(("record", "postgres_record"),),
                optional_payload=(
                    ("consul_service_id", "consul_service_id"),
                    *_WHERE,
                    *_TRACE,
                ),
            ),
        ),
        "emit_consul_register_intent": (
            EmitIntent(
                "emit_consul_register_intent",
                "consul.register",
                payload=(
                    ("service_id", "consul_service_id"),
                    ("service_name", "consul_service_name"),
                ),
                optional_payload=(
                    ("tags", "consul_tags"),
                    ("health_check", "consul_health_check"),
                    ("address", "address"),
                    ("port", "port"),
                    *_WHERE,
                    *_TRACE,
                ),
            ),
        ),
        "emit_consul_activate_intent": (
            EmitIntent(
                "emit_consul_activate_intent",
                "consul.activate",
                optional_payload=_TRACE,
            ),
        ),
        "emit_consul_deregister_intent": (
            EmitIntent(
                "emit_consul_deregister_intent",
                "consul.deregister",
                payload=(("service_id", "consul_service_id"),),
                optional_payload=_TRACE,
            ),
        ),
        "emit_postgres_deregister_intent": (
            EmitIntent(
                "emit_postgres_deregister_intent",
                "postgres.delete_registration",
                payload=(("node_id", "node_id"),),
                optional_payload=_TRACE[1:],
            ),
        ),
        "log_registration_start": (
            WriteLog("log_registration_start", Level.INFO, "Registration starts"),
        ),
        "log_postgres_success": (
            WriteLog(
                "log_postgres_success",
                Level.INFO,
                "Checkpoint postgres_registered: PostgreSQL holds the node, Consul is next",
            ),
        ),
        "log_registration_complete": (
            WriteLog("log_registration_complete", Level.INFO, "Registered in both systems"),
        ),
        "log_partial_failure": (
            WriteLog(
                "log_partial_failure",
                Level.ERROR,
                "Registered in one system only",
                ("postgres_applied", "consul_applied", "postgres_error", "consul_error"),
            ),
        ),
        "log_deregistration_complete": (
            WriteLog("log_deregistration_complete", Level.INFO, "Deregistered"),
        ),
        "log_failure": (
            WriteLog(
                "log_failure",
                Level.ERROR,
                "Registration failed",
                ("postgres_error", "consul_error", "validation_error"),
            ),
        ),
        "emit_registration_success_metric": (
            _metric(
                "emit_registration_success_metric", "registration_complete", "CONSUL_SUCCEEDED"
            ),
        ),
        "emit_partial_registration_metric": (
            _metric("emit_partial_registration_metric", "registration_partial", "CONSUL_FAILED"),
            _metric(
                "emit_partial_registration_metric",
                "registration_consul_error_total",
                "CONSUL_FAILED",
            ),
        ),
        "emit_deregistration_metric": (
            _metric(
                "emit_deregistration_metric", "deregistration_complete", "DEREGISTRATION_COMPLETE"
            ),
        ),
        "emit_failure_metric": (
            _metric(
                "emit_failure_metric", "registration_validation_error_total", "VALIDATION_FAILED"
            ),
            _metric("emit_failure_metric", "registration_postgres_failure", "POSTGRES_FAILED"),
            _metric("emit_failure_metric", "registration_fatal_error_total", "FATAL_ERROR"),
            _metric("emit_failure_metric", "registration_retry_exhausted_total", "RETRY_EXHAUSTED"),
        ),
    }
)
