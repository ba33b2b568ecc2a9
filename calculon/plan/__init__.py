"""Plans: tables of executions with derived counts, and the rules that valid executions meet."""
